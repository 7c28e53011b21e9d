#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Verdicts of longhaul tap on transfers of the kernel's TCP with a known limit, captured at three points.

    bench/verdicts/run.py [--only CAUSE,...] [--paths RATE:RTT_MS,...]

Two links of `longhaul link` join a sender, a router and a receiver. Each transfer has one cause: a small window, a slow reader, a
small send buffer, writes with pauses, pacing, a queue, losses, a slow start, with jitter and on a path that becomes longer, too.
tcpdump captures it at the sender, at the router before the bottleneck, and at the receiver.

The truth is the kernel's where it has one: tcp_info tells how long the receive window or the send buffer limited the sender.
Otherwise it is the limit that the cause was made for. The table counts the captures whose main limit is right.

Needs root and tcpdump.
"""
import contextlib, ctypes, dataclasses, json, pathlib, re, signal, socket, sys, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, ProgramError, hosts, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, parse_args, table

HOSTS = ("sender", "router", "receiver")
RECEIVER, PORT = "10.82.2.2", 5001
# The host and the interface of each capture point.
POINTS = {"sender": ("sender", "wan0"), "middle": ("router", "wan1"), "receiver": ("receiver", "wan3")}
SO_MAX_PACING_RATE = 47
CLONE_NEWNET = 0x40000000


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
    """What limits a transfer. Sizes are parts of the BDP, rates parts of the path's rate."""
    limit: str
    receive_buffer: float = 0
    send_buffer: float = 0
    pacing: float = 0
    write: float = 0
    pause_s: float = 0
    read_rate: float = 0
    control: str = "cubic"
    queue: float = 2
    loss: str = ""
    jitter: float = 0
    longer_at_s: float = 0
    seconds: float = 5


WINDOW = Cause("receive_window", receive_buffer=0.15)
WRITES = Cause("application", write=0.08, pause_s=0.01)
CAUSES = {
    "window": WINDOW,
    "half a window": Cause("receive_window", receive_buffer=0.4),
    "slow reader": Cause("receive_window", read_rate=0.15),
    "send buffer": Cause("application", send_buffer=0.1),
    "pauses": Cause("application", write=1.2, pause_s=0.4),
    "writes": WRITES,
    "pacing": Cause("application", pacing=0.25),
    "queue cubic": Cause("bottleneck_bandwidth", seconds=7),
    "queue reno": Cause("bottleneck_bandwidth", control="reno", seconds=7),
    "deep queue": Cause("bottleneck_bandwidth", queue=8, seconds=8),
    "short queue": Cause("congestion_window", queue=0.1, seconds=7),
    "losses cubic": Cause("congestion_window", loss="1%", seconds=7),
    "losses reno": Cause("congestion_window", control="reno", loss="0.5%", seconds=7),
    "window jitter": dataclasses.replace(WINDOW, jitter=0.1),
    "writes jitter": dataclasses.replace(WRITES, jitter=0.1),
    "queue jitter": Cause("bottleneck_bandwidth", jitter=0.08, seconds=7),
    "losses jitter": Cause("congestion_window", loss="1%", jitter=0.1, seconds=7),
    "window longer path": dataclasses.replace(WINDOW, longer_at_s=4.5, seconds=6),
    "writes longer path": dataclasses.replace(WRITES, longer_at_s=4.5, seconds=6),
}


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


@contextlib.contextmanager
def testbed(args, cause, path):
    """Creates the three hosts and both links for the block."""
    one_way_ms = path.rtt_ms / 2
    near = ["--name", "near", "--delay", f"{one_way_ms * 0.4:g}ms"]
    far = ["--name", "far", "--delay", f"{one_way_ms * 0.6:g}ms", "--rate", f"{path.rate_mbit:g}mbit",
           "--queue", f"{path.packets(cause.queue)}p"]
    far += ["--loss", cause.loss] if cause.loss else []
    far += ["--jitter", f"{path.rtt_ms * cause.jitter:g}ms"] if cause.jitter else []
    far += ["--at", f"{cause.longer_at_s:g}s: delay {one_way_ms * 1.5:g}ms"] if cause.longer_at_s else []
    with hosts(*HOSTS, sysctls=["net.ipv4.ip_forward=1"]), contextlib.ExitStack() as stack:
        for left, right, flags in (("sender:wan0:10.82.1.1/24", "router:wan1:10.82.1.2/24", near),
                                   ("router:wan2:10.82.2.1/24", f"receiver:wan3:{RECEIVER}/24", far)):
            stack.enter_context(Program(None, args.longhaul, "link", "--left", left, "--right", right, *flags, ready=r"\bready$"))
        run_command("ip", "-n", "sender", "route", "add", "10.82.2.0/24", "via", "10.82.1.2")
        run_command("ip", "-n", "receiver", "route", "add", "10.82.1.0/24", "via", "10.82.2.1")
        yield


def transfer(cause, path):
    """Runs one transfer, and returns the shares of its time that the kernel says were limited by a window or a buffer."""
    listener, client = socket_on("receiver"), socket_on("sender")
    with listener, client:
        set_size(listener, socket.SO_RCVBUF, cause.receive_buffer * path.bdp())
        listener.bind((RECEIVER, PORT))
        listener.listen()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cause.control.encode())
        set_size(client, socket.SO_SNDBUF, cause.send_buffer * path.bdp())
        set_size(client, SO_MAX_PACING_RATE, cause.pacing * path.rate_mbit * 125_000)
        client.settimeout(cause.seconds + 5)
        client.connect((RECEIVER, PORT))
        server, _ = listener.accept()
        with server:
            server.settimeout(cause.seconds + 5)
            reader = threading.Thread(target=read_all, args=(server, cause.read_rate * path.rate_mbit * 125_000), daemon=True)
            reader.start()
            write_all(client, cause, path)
            limited = limited_shares()
            client.close()
            reader.join(2)
    return limited


def set_size(endpoint, option, value):
    """Sets a size of a socket; the kernel doubles buffers."""
    if value:
        endpoint.setsockopt(socket.SOL_SOCKET, option, int(value))


def write_all(client, cause, path):
    end = time.monotonic() + cause.seconds
    data = b"x" * int(cause.write * path.bdp() or 1 << 16)
    while time.monotonic() < end:
        client.sendall(data) if cause.write else client.send(data)
        time.sleep(cause.pause_s)


def read_all(server, rate):
    with contextlib.suppress(OSError):
        while data := server.recv(1 << 16):
            time.sleep(len(data) / rate if rate else 0)


def limited_shares():
    text = run_command(*netns_exec("sender", "ss", "-tinH", "dst", RECEIVER))
    share = lambda name: float(match[1]) / 100 if (match := re.search(name + r":\S+\(([\d.]+)%\)", text)) else 0.0
    return {name: share(name) for name in ("rwnd_limited", "sndbuf_limited")}


def run(args, cause, path, directory):
    """Runs and captures one transfer. Returns its truth and the verdicts."""
    with testbed(args, cause, path), contextlib.ExitStack() as captures:
        files = {point: directory / f"{point}.pcap" for point in POINTS}
        for point, (host, interface) in POINTS.items():
            command = ("tcpdump", "-Z", "root", "-i", interface, "-s", 128, "-B", 16384, "-w", files[point], "tcp", "port", PORT)
            captures.enter_context(Program(host, *command, ready="listening on", stop=signal.SIGINT))
        limited = transfer(cause, path)
        time.sleep(0.3)
    truth = cause.limit
    truth = "receive_window" if limited["rwnd_limited"] > 0.5 else "application" if limited["sndbuf_limited"] > 0.5 else truth
    verdicts = {point: main_limit(args, directory, file) for point, file in files.items()}
    return {"truth": truth} | limited | verdicts | {"both": main_limit(args, directory, files["sender"], files["receiver"])}


def main_limit(args, directory, *files):
    """Returns the main limit of the largest flow in these captures, and its share of the time."""
    with tempfile.TemporaryDirectory(dir=directory) as out:
        run_command(args.longhaul, "tap", "analyze", *files, "-o", f"{out}/result")
        flows = json.loads(pathlib.Path(out, "result/result.json").read_text())["flows"]
    flow = max(flows, key=lambda flow: flow["upload"]["data"]["unique_bytes"])
    shares = {}
    for period in flow["upload"]["limits"]:
        shares[period["limit"]] = shares.get(period["limit"], 0) + period["to_ns"] - period["from_ns"]
    if not shares:
        return "none", 0.0
    limit = max(shares, key=shares.get)
    return limit, round(shares[limit] / sum(shares.values()), 2)


def table_lines(rows):
    places = (*POINTS, "both")
    for (cause,), own in group_by(rows, "cause"):
        right = [sum(row[place][0] == row["truth"] for row in own) for place in places]
        wrong = [f"{place}: {row[place][0]}" for row in own for place in places if row[place][0] != row["truth"]]
        yield (cause, len(own), *right, ", ".join(wrong) or "–")
    yield ("all", len(rows), *(sum(row[place][0] == row["truth"] for row in rows) for place in places), "")


def parse_arguments():
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--only", type=comma_separated, default=list(CAUSES), metavar="CAUSE,...", help="only these causes")
    parser.add_argument("--paths", type=comma_separated, default=["50:40", "10:80", "200:20"], metavar="MBIT:RTT_MS,...", help="rates and round trips (50:40,10:80,200:20)")
    args = parse_args(parser, required=("tcpdump", "ss"), paths=["50:40"])
    if unknown := [name for name in args.only if name not in CAUSES]:
        parser.error(f"--only {unknown[0]}: expected one of {', '.join(CAUSES)}")
    args.paths = [Path(*map(float, path.split(":"))) for path in args.paths]
    return args


def main():
    args = parse_arguments()
    run_in_namespaces()
    results = Results(args, ["tcpdump"])
    for round_ in range(args.rounds):
        for path in args.paths:
            for name in args.only:
                with tempfile.TemporaryDirectory() as directory, results.catch_errors(f"{path}: {name}"):
                    found = run(args, CAUSES[name], path, pathlib.Path(directory))
                    results.add({"cause": name, "path": str(path), "round": round_} | found)
    return results.finish(table(("cause", "captures", *POINTS, "both", "wrong"), table_lines(results.rows)))


if __name__ == "__main__":
    sys.exit(main())
