#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Verdicts of longhaul tap on transfers of the kernel's TCP with a known limit, captured at three points.

    bench/verdicts/run.py [--only CAUSE,...] [--paths RATE:RTT_MS,...] [--corpus DIR]
    bench/verdicts/run.py --controls CONTROL,... [--paths RATE:RTT_MS,...] [--corpus DIR]
    bench/verdicts/run.py --judge DIR

Two links of `longhaul link` join a sender, a router and a receiver. Each transfer has one cause: a small window, a slow reader, a
small send buffer, writes with pauses, pacing, a queue, losses, ECN marks, a slow start, a slow ACK path, with jitter, without
timestamps and on a path that becomes longer, too. tcpdump captures it at the sender, at the router before the bottleneck, and at the receiver.

The truth comes from records of the transfer, not from its cause. The kernel's tcp_info tells how long the receive window or the
send buffer limited the sender, and when it had nothing to send. The emulator's counters tell how much of the line was used,
and how long data and ACKs were queued. A transfer of which they tell no main limit is not judged.

--corpus keeps the captures with their truth, and --judge analyses them again (`make corpus` does both). The tables count the
captures whose main limit is right, by cause and by truth. Rules may be tuned with transfers of odd numbers. Those of even
numbers judge them.

Needs root and tcpdump.
"""
import contextlib, ctypes, dataclasses, json, pathlib, shutil, signal, socket, statistics, struct, sys, tempfile, threading, time, tomllib, typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import (Program, Results, argument_parser, comma_separated, group_by, hosts, load_control,
    netns_exec, parse_args, run_command, run_in_namespaces, table)

HOSTS = ("sender", "router", "receiver")
RECEIVER, PORT = "10.82.2.2", 5001
# The host and the interface of each capture point.
POINTS = {"sender": ("sender", "wan0"), "middle": ("router", "wan1"), "receiver": ("receiver", "wan3")}
PLACES = (*POINTS, "both")
LIMITS = ("application", "receive_window", "congestion_window", "bottleneck_bandwidth", "ack_stream")
SO_MAX_PACING_RATE = 47
# The router marks so many of 10,000 packets that ECN allows to mark, at random, as a queue would with early marks.
MARKING = """add table ip marking
add chain ip marking forward {{ type filter hook forward priority 0 ; }}
add rule ip marking forward ip ecn != not-ect numgen random mod 10000 < {:.0f} ip ecn set ce"""
CLONE_NEWNET = 0x40000000
# A part of the time or of the rate above the first is the main limit; between the two it is not known whether it is.
MAIN, MINOR = 0.6, 0.4
FULL_RATE, PARTLY_FULL = 0.92, 0.75
# A paced sender that has this part of its rate is not held back by losses.
PACED = 0.9
SAMPLE_S = 0.02
# Less than this waits for the ACK before it, by Nagle's algorithm.
SEGMENT = 1448


@dataclasses.dataclass(frozen=True)
class Path:
    """Rate of the bottleneck and round trip."""
    rate_mbit: float
    rtt_ms: float

    def bdp(self):
        return int(self.rate_mbit * self.rtt_ms * 125)

    def packets(self, bdps):
        return max(4, int(self.bdp() * bdps / 1500))

    def __str__(self):
        return f"{self.rate_mbit:g} Mbit/s, {self.rtt_ms:g} ms"


@dataclasses.dataclass(frozen=True)
class Cause:
    """What a transfer is like. Sizes are parts of the BDP, rates parts of the path's rate, times parts of its round trip."""
    controls: typing.Sequence = ("cubic",)
    receive_buffer: float = 0
    receive_buffer_max: float = 0
    send_buffer: float = 0
    pacing: float = 0
    write: float = 0
    pause_s: float = 0
    replies: bool = False
    read_rate: float = 0
    read_bytes: float = 0
    size: float = 0
    queue: float = 2
    aqm: str = ""
    policed: bool = False
    loss: str = ""
    jitter: float = 0
    jitter_law: str = "normal"
    jitter_lasts_ms: int = 0
    reordered: str = ""
    ack_rate: float = 0
    ack_thinning: int = 0
    ack_path_rate: float = 0
    longer_at_s: float = 0
    marked: float = 0
    timestamps: bool = True
    seconds: float = 5


# The controls that tap names, and the limits with which a control shows.
NAMES = ("reno", "cubic", "bbr", "bic", "scalable", "htcp", "hstcp", "unknown")
GOVERNED = ("congestion_window", "bottleneck_bandwidth")


def read_causes(table):
    return {name: Cause(**values) for name, values in tomllib.loads(pathlib.Path(__file__).with_name("causes.toml").read_text())[table].items()}


PLAIN = read_causes("plain")
CAUSES = PLAIN | read_causes("others")
CAUSES |= {f"{name} without timestamps": dataclasses.replace(cause, timestamps=False) for name, cause in PLAIN.items()}
CONTROL_CAUSES = read_causes("controls")


def enter(host):
    """Moves this thread to the namespace of a host."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{host}", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {host}")


def socket_on(host):
    made = []
    thread = threading.Thread(target=lambda: (enter(host), made.append(socket.socket())))
    thread.start()
    thread.join()
    return made[0]


def link_flags(cause, path, counters, seed):
    """Returns the flags of the link between the sender and the router, and of that between the router and the receiver."""
    one_way_ms = path.rtt_ms / 2
    near = ["--name", "near", "--delay", f"{one_way_ms * 0.4:g}ms"]
    near += ["--rate", f"{path.rate_mbit * 0.8:g}mbit", "--queue", "8p"] if cause.policed else []
    far = ["--name", "far", "--delay", f"{one_way_ms * 0.6:g}ms", "--queue", f"{path.packets(cause.queue)}p", "--seed", seed,
           "--counters", counters, "--interval", f"{SAMPLE_S * 1e3:g}ms", "--rate", f"{path.rate_mbit:g}mbit"]
    # Data segments a second at the full rate, and half as many ACKs.
    acks = path.rate_mbit * 1e6 / 8 / 1500 / 2
    flags = {"--aqm": cause.aqm, "--loss": cause.loss,
             "--jitter": (f"{cause.jitter_law}:{path.rtt_ms * cause.jitter:g}ms"
                          + f",correlation={cause.jitter_lasts_ms}ms" * bool(cause.jitter_lasts_ms)) if cause.jitter else "",
             "--reorder": f"{cause.reordered}:{path.rtt_ms / 8:g}ms" if cause.reordered else "",
             "--at": f"{cause.longer_at_s:g}s: delay {one_way_ms * 1.5:g}ms" if cause.longer_at_s else ""}
    backward = [f"ack-rate={acks * cause.ack_rate:.0f}"] * bool(cause.ack_rate) + [f"ack-thin={cause.ack_thinning}"] * bool(cause.ack_thinning)
    backward += [f"rate={acks * 52 * 8e-3 * cause.ack_path_rate:.0f}kbit"] * bool(cause.ack_path_rate)
    far += [word for flag, value in flags.items() if value for word in (flag, value)]
    return near, far + [word for setting in backward for word in ("--backward", setting)]


@contextlib.contextmanager
def testbed(args, cause, path, counters, seed):
    """Creates the three hosts and both links for the block."""
    near, far = link_flags(cause, path, counters, seed)
    sysctls = ["net.ipv4.ip_forward=1", f"net.ipv4.tcp_ecn={1 if cause.marked else 2}", f"net.ipv4.tcp_timestamps={int(cause.timestamps)}"]
    with hosts(*HOSTS, sysctls=sysctls), contextlib.ExitStack() as stack:
        for left, right, flags in (("sender:wan0:10.82.1.1/24", "router:wan1:10.82.1.2/24", near),
                                   ("router:wan2:10.82.2.1/24", f"receiver:wan3:{RECEIVER}/24", far)):
            stack.enter_context(Program(None, args.longhaul, "link", "--left", left, "--right", right, *flags, ready=r"\bready$"))
        run_command("ip", "-n", "sender", "route", "add", "10.82.2.0/24", "via", "10.82.1.2")
        run_command("ip", "-n", "receiver", "route", "add", "10.82.1.0/24", "via", "10.82.2.1")
        if cause.marked:
            run_command(*netns_exec("router", "nft", MARKING.format(cause.marked * 1e4)))
        if cause.receive_buffer_max:
            most = int(cause.receive_buffer_max * path.bdp())
            run_command(*netns_exec("receiver", "sysctl", "-qw", f"net.ipv4.tcp_rmem=4096 {min(most, 131072)} {most}"))
        yield


def transfer(cause, control, path):
    """Runs one transfer, and returns what the kernel recorded of it."""
    listener, client = socket_on("receiver"), socket_on("sender")
    with listener, client:
        set_size(listener, socket.SO_RCVBUF, cause.receive_buffer * path.bdp())
        listener.bind((RECEIVER, PORT))
        listener.listen()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        set_size(client, socket.SO_SNDBUF, cause.send_buffer * path.bdp())
        set_size(client, SO_MAX_PACING_RATE, cause.pacing * path.rate_mbit * 125_000)
        client.settimeout(cause.seconds + 5)
        client.connect((RECEIVER, PORT))
        server, _ = listener.accept()
        with server:
            server.settimeout(cause.seconds + 5)
            threading.Thread(target=read_all, args=(server, cause, path), daemon=True).start()
            with sampled(client) as samples:
                write_all(client, cause, path)
            return kernel_record(samples)


def set_size(endpoint, option, value):
    """Sets a size of a socket; the kernel doubles buffers."""
    if value:
        endpoint.setsockopt(socket.SOL_SOCKET, option, int(value))


def write_all(client, cause, path):
    end = time.monotonic() + cause.seconds
    data = b"x" * int(cause.write * path.bdp() or 1 << 16)
    left = int(cause.size * path.bdp()) or 1 << 60
    client.settimeout(0.1)
    while time.monotonic() < end and left > 0:
        with contextlib.suppress(TimeoutError):
            left -= client.send(data[:left])
        if cause.replies:
            wait_for(client, lambda info: info["unacked"] == 0, end)
        time.sleep(cause.pause_s)
    if cause.size:
        wait_for(client, lambda info: info["unacked"] == 0 and info["notsent_bytes"] == 0, end)


def wait_for(client, condition, end):
    while time.monotonic() < end and not condition(tcp_info(client)):
        time.sleep(0.001)


def read_all(server, cause, path):
    rate, left = cause.read_rate * path.rate_mbit * 125_000, int(cause.read_bytes * path.bdp()) or 1 << 60
    with contextlib.suppress(OSError):
        while left > 0 and (data := server.recv(1 << 16)):
            left -= len(data)
            time.sleep(len(data) / rate if rate else 0)


def tcp_info(endpoint):
    """Returns members of struct tcp_info (include/uapi/linux/tcp.h)."""
    info = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    words, longs = struct.unpack_from("24I", info, 8), struct.unpack_from("3Q", info, 168)
    return {"unacked": words[4], "retransmissions": words[23], "notsent_bytes": struct.unpack_from("I", info, 144)[0],
            "busy_us": longs[0], "rwnd_limited_us": longs[1], "sndbuf_limited_us": longs[2]}


@contextlib.contextmanager
def sampled(endpoint):
    """Samples tcp_info during the block."""
    samples, is_over = [], threading.Event()

    def sample():
        while not is_over.is_set():
            samples.append(tcp_info(endpoint))
            is_over.wait(SAMPLE_S)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def kernel_record(samples):
    """Returns shares of the time in which the window, the send buffer or the application limited the sender."""
    last = samples[-1]
    share = lambda name: last[name] / max(1, last["busy_us"])
    return {"rwnd_limited": share("rwnd_limited_us"), "sndbuf_limited": share("sndbuf_limited_us"),
            "nothing_to_send": statistics.mean(sample["notsent_bytes"] < SEGMENT for sample in samples),
            "retransmissions": last["retransmissions"]}


def emulator_record(counters, path):
    """Returns the shares of the time in which data and ACKs were queued, and the used share of the line, without the first third."""
    rows = [row for line in counters.read_text().splitlines() if (row := json.loads(line))["record"] == "link"]
    sides = {side: [row for row in rows if row["direction"] == side] for side in ("forward", "backward")}
    busy = [row for row in sides["forward"] if row["delivered_bytes"]]
    last = next(row for row in busy if row["delivered_bytes"] >= busy[-1]["delivered_bytes"] - 3000)
    span = [row for row in busy if busy[0]["seconds"] + (last["seconds"] - busy[0]["seconds"]) / 3 <= row["seconds"] <= last["seconds"]]
    # Of ACKs, those that wait for --ack-rate are in no queue.
    queued = lambda rows: statistics.mean(row["inside"] > row["in_flight"] for row in rows)
    acks = [row for row in sides["backward"] if span[0]["seconds"] <= row["seconds"] <= span[-1]["seconds"]]
    carried = (span[-1]["delivered_bytes"] - span[0]["delivered_bytes"]) * 8e-6 / (span[-1]["seconds"] - span[0]["seconds"])
    return {"data_queued": queued(span), "acks_queued": queued(acks), "used": carried / path.rate_mbit}


def main_limit_of(cause, record):
    """Returns the main limit by the records of a transfer; None if they do not tell one."""
    application = float(record["used"] > PACED * cause.pacing) if cause.pacing else max(record["sndbuf_limited"], record["nothing_to_send"])
    shares = {"bottleneck_bandwidth": float(record["used"] > FULL_RATE), "application": application,
              "receive_window": record["rwnd_limited"], "ack_stream": record["acks_queued"]}
    main = [limit for limit, share in shares.items() if share > MAIN]
    if main[:1] == ["bottleneck_bandwidth"]:
        return main[0]
    # Losses or slow ACKs leave a part of the line unused: either they or the line may be called the main limit.
    if len(main) > 1 or record["used"] > PARTLY_FULL:
        return None
    is_open = any(MINOR < share <= MAIN for share in shares.values())
    return main[0] if main else None if is_open else "congestion_window"


def run(args, name, control, path, seed, directory):
    """Runs and captures one transfer. Returns what is known of it."""
    cause, counters = (CONTROL_CAUSES if args.controls else CAUSES)[name], directory / "link.jsonl"
    with load_control(args.longhaul, control), testbed(args, cause, path, counters, seed), contextlib.ExitStack() as captures:
        for point, (host, interface) in POINTS.items():
            command = ("tcpdump", "-Z", "root", "-i", interface, "-s", 128, "-B", 16384, "-w", directory / f"{point}.pcap", "tcp", "port", PORT)
            captures.enter_context(Program(host, *command, ready="listening on", stop=signal.SIGINT))
        record = transfer(cause, control, path)
        # tcpdump reads packets once a second.
        time.sleep(1.2)
    record |= emulator_record(counters, path)
    counters.unlink()
    found = {"cause": name, "control": control, "path": str(path), "truth": main_limit_of(cause, record)} | record
    (directory / "truth.json").write_text(json.dumps(found))
    return found


def judge(args, directory):
    """Returns the main limit by each capture of a transfer, and by both ends."""
    files = {point: directory / f"{point}.pcap" for point in POINTS}
    directions = {point: analyze(args, file) for point, file in files.items()}
    names = {"controls": {point: (direction.get("congestion_control") or {"name": "unknown"})["name"] for point, direction in directions.items()}}
    directions["both"] = analyze(args, files["sender"], files["receiver"])
    return {place: verdict(direction) for place, direction in directions.items()} | names


def analyze(args, *files):
    """Returns the upload of the largest flow in these captures."""
    flows = json.loads(run_command(args.longhaul, "tap", "analyze", *files, "--json"))["flows"]
    return max(flows, key=lambda flow: flow["upload"]["data"]["unique_bytes"])["upload"]


def verdict(direction):
    """Returns the main limit of a direction, and its share of the time."""
    shares = {}
    for period in direction["limits"]:
        shares[period["limit"]] = shares.get(period["limit"], 0) + period["to_ns"] - period["from_ns"]
    if not shares:
        return "none", 0.0
    limit = max(shares, key=shares.get)
    return limit, round(shares[limit] / sum(shares.values()), 2)


def cause_lines(rows):
    for (cause,), own in group_by(rows, "cause"):
        wrong = [f"{row['control']} {row['path']} {place}: {row[place][0]}" for row in own for place in PLACES if not is_right(row, place)]
        yield (cause, len(own), *count_right(own), ", ".join(wrong) or "–")
    for (half,), own in group_by(rows, "half"):
        yield (f"all, {half}", len(own), *count_right(own), "")


def truth_lines(rows):
    """Lines of the confusion matrix: a truth at a place, and how often each limit was said there."""
    for (truth,), own in group_by(rows, "truth"):
        for place in PLACES:
            said = [row[place][0] for row in own]
            yield (truth, place, len(own), *(said.count(limit) or "–" for limit in LIMITS))


def control_lines(rows):
    """Lines of the confusion matrix of controls, where losses or the line limited the sender."""
    governed = [row for row in rows if row["truth"] in GOVERNED]
    for (control, half), own in group_by(governed, "control", "half"):
        for point in POINTS:
            said = [row["controls"][point] for row in own]
            yield (control, half, point, len(own), *(said.count(name) or "–" for name in NAMES))


def is_right(row, place):
    return row[place][0] == row["truth"]


def count_right(rows):
    return [sum(is_right(row, place) for row in rows) for place in PLACES]


def parse_arguments():
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--only", type=comma_separated, metavar="CAUSE,...", help="only these causes")
    parser.add_argument("--controls", type=comma_separated, default=[], metavar="CONTROL,...", help="only causes that show these congestion controls")
    parser.add_argument("--paths", type=comma_separated, default=["50:40", "10:80", "200:20"], metavar="MBIT:RTT_MS,...", help="rates and round trips (50:40,10:80,200:20)")
    parser.add_argument("--corpus", type=pathlib.Path, metavar="DIR", help="keep the captures in this directory")
    parser.add_argument("--judge", type=pathlib.Path, metavar="DIR", help="judge the captures in this directory")
    args = parse_args(parser, required=("tcpdump",), paths=["50:40"])
    known = CONTROL_CAUSES if args.controls else CAUSES
    args.only = args.only or list(known)
    if unknown := [name for name in args.only if name not in known]:
        parser.error(f"--only {unknown[0]}: expected one of {', '.join(known)}")
    args.paths = [Path(*map(float, path.split(":"))) for path in args.paths]
    return args


def transfers(args):
    """Yields the number of each transfer, the directory of its captures, which lasts until the next one, and what runs it."""
    every = [(round_, path, name, control) for round_ in range(args.rounds) for path in args.paths for name in args.only
             for control in args.controls or CAUSES[name].controls]
    for number, (round_, path, name, control) in enumerate(every, 1):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            if args.corpus:
                directory = args.corpus / f"{number:03}-{name}-{control}-{path.rate_mbit:g}-{path.rtt_ms:g}".replace(" ", "_")
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir(parents=True)
            yield number, directory, lambda: run(args, name, control, path, number, directory)


def kept_transfers(args):
    for file in sorted(args.judge.glob("*/truth.json")):
        yield int(file.parent.name.split("-")[0]), file.parent, lambda: json.loads(file.read_text())


def main():
    args = parse_arguments()
    if not args.judge:
        run_in_namespaces()
    results = Results(args, ["tcpdump"])
    for number, directory, known in (kept_transfers if args.judge else transfers)(args):
        with results.catch_errors(str(number)):
            row = known() | {"half": "tuned with" if number % 2 else "judged"}
            if truth := main_limit_of((CAUSES | CONTROL_CAUSES)[row["cause"]], row):
                results.add(row | {"truth": truth} | judge(args, directory))
            else:
                results.record("skipped", f"{row['path']}: {row['cause']}, {row['control']}", "its records tell no main limit")
    by_cause = table(("cause", "transfers", *PLACES, "wrong"), cause_lines(results.rows))
    by_truth = table(("truth", "captured at", "transfers", *LIMITS), truth_lines(results.rows))
    by_control = table(("control", "half", "captured at", "transfers", *NAMES), control_lines(results.rows))
    return results.finish([*by_cause, "", *by_truth, "", *by_control])


if __name__ == "__main__":
    sys.exit(main())
