#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul udt beside libudt 4.11: what a path gives, and what that costs the processor.

    bench/udt/run.py [--seconds 20] [--only KEY=VALUE|VALUE]... [--ours NAME,...] [--realtime]

Two network namespaces, joined by veth (rtt_ms=0: nothing but the processor limits it) or by `longhaul link` at 1 Gbit/s with a
round trip of 38 or 180 ms, a BDP of queue and losses in both directions. From memory to memory over one connection, in turns.
All have the same windows and the same socket buffers.

What counts is the second half of each run, at the receiver; of CPU time user's and system's of both processes then, as the
scheduler counts it. What the kernel does in soft interrupts is charged to whom it interrupts, or to nobody.

  --only 'rtt_ms=38|180' --only loss=0      some of the paths
  --ours bbr                                some of ours, as `longhaul udt bench --cc NAME`

Needs root; libudt needs c++ and libudt-dev.
"""
import contextlib, dataclasses, json, pathlib, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, ProgramError, add_veth, emulated_link, hosts, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, parse_args, table

THEIRS = "libudt"
SOURCE, TARGET = ("source", "10.78.0.1/30"), ("target", "10.78.0.2/30")
ADDRESS, PORT = "10.78.0.2", 9000
RATE_BPS = 1_000_000_000
# Of an IP packet of 1500 bytes, what UDT carries.
PAYLOAD = 1456 / 1500
FIGURES = ("mbps", "sender_s_per_gb", "receiver_s_per_gb", "mb_per_cpu_s")


@dataclasses.dataclass(frozen=True)
class Path:
    """rtt_ms 0 is a veth pair, of any rate."""
    rtt_ms: int
    loss: float

    def window(self):
        """In packets: two BDP, so that it is never what limits."""
        return max(8192, 2 * RATE_BPS * self.rtt_ms // 1000 // 8 // 1500)

    def __str__(self):
        return f"1 Gbit/s, {self.rtt_ms} ms, loss {self.loss:g}" if self.rtt_ms else "veth"


PATHS = [Path(0, 0.0)] + [Path(rtt_ms, loss) for rtt_ms in (38, 180) for loss in (0.0, 1e-4, 1e-3)]


@contextlib.contextmanager
def joined(path, args, record):
    with hosts(SOURCE[0], TARGET[0]):
        if not path.rtt_ms:
            add_veth(SOURCE, TARGET)
            yield
            return
        with emulated_link(args.longhaul, SOURCE, TARGET, "--rate", f"{RATE_BPS}bit", "--delay", f"{path.rtt_ms / 2:g}ms",
                  "--loss", f"{path.loss * 100:g}%", "--counters", record, *["--realtime"] * args.realtime):
            yield


def lateness_us(record):
    """By how much the link itself was late, after its end: median and p99 of the worse direction."""
    lines = record.read_text().splitlines() if record.exists() else []
    checks = [line["lateness"] for line in map(json.loads, lines) if line.get("record") == "timing_report"]
    return {key: max(check[key] for check in checks) for key in ("median_us", "p99_us")} if checks else None


class Ours:
    """`sends` and `receives` are commands, `came` the bytes at the receiver over time."""
    READY = "serving"

    def __init__(self, path, args, name):
        options = ["--window", path.window(), "--cc", name.removeprefix("longhaul ")]
        self.receives = [args.longhaul, "udt", "bench", "--listen", f"{ADDRESS}:{PORT}", *options]
        self.sends = [args.longhaul, "udt", "bench", f"{ADDRESS}:{PORT}", "--time", f"{args.seconds}s",
                      "--interval", "100ms", "--json", *options]

    def came(self, client, _):
        receiver, bytes_ = json.loads(client.output(timeout=120))["receiver"], 0
        points = [(receiver["began_s"], 0)]
        for number, interval in enumerate(receiver["intervals"], 1):
            bytes_ += interval["bytes"]
            points.append((receiver["began_s"] + number * 0.1, bytes_))
        return points


class Theirs:
    READY = "ready"

    def __init__(self, path, args, _):
        self.receives = [args.libudt, "receive", PORT, path.window()]
        self.sends = [args.libudt, "send", ADDRESS, PORT, path.window()]

    def came(self, client, server):
        client.terminate()
        server.terminate()
        lines = server.read(server.out).splitlines()
        return [(float(at), int(bytes_)) for at, bytes_ in (line.split() for line in lines)]


def run(subject, seconds):
    """The figures of one run."""
    with Program(TARGET[0], *subject.receives, ready=subject.READY) as server, Program(SOURCE[0], *subject.sends) as client:
        looks = watch(client, server, seconds)
        return figures(subject.came(client, server), looks)


def watch(client, server, seconds):
    """The time and both CPU times, in the middle and at the end."""
    began, looks = time.time(), []
    for moment in (seconds / 2, seconds):
        if client.wait(max(0.0, began + moment - time.time())):
            raise ProgramError(f"the sender ended: {client.log()[-400:]}")
        looks.append((time.time(), cpu_s(client.pid), cpu_s(server.pid)))
    return looks


def cpu_s(pid):
    """User and system time of all threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def figures(points, looks):
    (begin, *cpu_before), (end, *cpu_after) = looks
    bytes_ = at(points, end) - at(points, begin)
    gigabytes = max(bytes_, 1) / 1e9
    sender, receiver = (after - before for before, after in zip(cpu_before, cpu_after))
    return dict(zip(FIGURES, (bytes_ * 8e-6 / (end - begin), sender / gigabytes, receiver / gigabytes,
                              bytes_ / 1e6 / (sender + receiver))))


def at(points, moment):
    """Bytes by then, on straight lines between the points."""
    before = max((point for point in points if point[0] <= moment), default=(0, 0))
    after = min((point for point in points if point[0] > moment), default=before)
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (moment - before[0]) / (after[0] - before[0])


def a_round(args, results, turn, subjects, directory):
    """Who begins changes from round to round."""
    begin = turn % len(subjects)
    for path in args.paths:
        mine, record = [], directory / "link.jsonl"
        record.unlink(missing_ok=True)
        with results.catch_errors(str(path)), joined(path, args, record):
            for name in subjects[begin:] + subjects[:begin]:
                subject = (Theirs if name == THEIRS else Ours)(path, args, name)
                with results.catch_errors(f"{path}: {name}", peer=name == THEIRS):
                    mine.append({**dataclasses.asdict(path), "subject": name, "round": turn, **run(subject, args.seconds)})
        for row in mine:
            results.add(row | {"link_late": lateness_us(record)})


def lines(rows):
    found = {key: {name: statistics.median(row[name] for row in mine) for name in FIGURES} for key, mine in group_by(rows, "rtt_ms", "loss", "subject")}
    for (rtt_ms, loss, name), median in found.items():
        used = f"{median['mbps'] * 1e6 / RATE_BPS / PAYLOAD:.3f}" if rtt_ms else ""
        theirs = found.get((rtt_ms, loss, THEIRS))
        ratio = f"{median['mb_per_cpu_s'] / theirs['mb_per_cpu_s']:.2f}" if theirs and name != THEIRS else ""
        yield (Path(rtt_ms, loss), name, f"{median['mbps']:.1f}", used, f"{median['sender_s_per_gb']:.2f}",
               f"{median['receiver_s_per_gb']:.2f}", f"{median['mb_per_cpu_s']:.0f}", ratio)


def arguments():
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of a run, of which the second half counts (20)")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE|VALUE", help="paths with these: rtt_ms (0, 38, 180), loss")
    parser.add_argument("--ours", type=comma_separated, default=["native", "bbr"], metavar="NAME,...", help="rate controls of ours (native,bbr)")
    parser.add_argument("--realtime", action="store_true", help="the link runs before all ordinary threads")
    args = parse_args(parser, seconds=2)
    args.paths = [path for path in PATHS if all(matches(parser, path, word) for word in args.only)]
    if not args.paths:
        parser.error("no path is left of --only")
    return args


def matches(parser, path, word):
    key, equals, values = word.partition("=")
    if not equals or key not in ("rtt_ms", "loss"):
        parser.error(f"--only {word}: want KEY=VALUE|VALUE, where KEY is rtt_ms or loss")
    return getattr(path, key) in map(float, values.split("|"))


def main():
    args = arguments()
    run_in_namespaces()
    results = Results(args, rmem_max=int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text()))
    subjects = [f"longhaul {control}" for control in args.ours]
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        args.libudt = directory / "libudt"
        with results.catch_errors(THEIRS, peer=True):
            run_command("c++", "-std=c++17", "-O2", "-o", args.libudt, pathlib.Path(__file__).with_name("libudt.cpp"), "-ludt", "-lpthread")
            subjects.append(THEIRS)
        for turn in range(args.rounds):
            a_round(args, results, turn, subjects, directory)
    heads = ("path", "", "Mbit/s", "of the path", "CPU s/GB: sender", "receiver", "MB a CPU s", "times libudt's")
    return results.finish(table(heads, lines(results.rows)))


if __name__ == "__main__":
    sys.exit(main())
