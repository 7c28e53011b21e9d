#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Goodput and CPU time of longhaul udt, compared with libudt 4.11.

    bench/udt/run.py [--seconds 20] [--only KEY=VALUE|VALUE]... [--controls NAME,...] [--realtime]

Two network namespaces are joined by veth (rtt_ms=0: only the processor limits the rate), or by `longhaul link` at 1 Gbit/s
with an RTT of 38 or 180 ms, a queue of one BDP, and losses in both directions. One more link has 40 Mbit/s, 50 ms and 5 ms of
jitter that reorders packets. One connection carries data from memory to memory. The programs alternate, with the same windows
and the same socket buffers.

The figures are of the second half of each run: goodput at the receiver, and user and system CPU time of both processes, as the
scheduler counts it. The kernel charges soft interrupts to the process that they interrupt, or to none.

  --only 'rtt_ms=38|180' --only loss=0      only these paths
  --only jitter_ms=5                        only the path that reorders
  --controls bbr                            only this rate control, as in `longhaul udt bench --cc NAME`

Needs root; libudt needs c++ and libudt-dev.
"""
import contextlib, dataclasses, json, pathlib, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, ProgramError, add_veth, emulated_link, hosts, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, parse_args, table

LIBUDT = "libudt"
SOURCE, TARGET = ("source", "10.78.0.1/30"), ("target", "10.78.0.2/30")
ADDRESS, PORT = "10.78.0.2", 9000
RATE_BPS = 1_000_000_000
# The share of an IP packet of 1500 bytes that is UDT payload.
PAYLOAD = 1456 / 1500
METRICS = ("mbps", "sender_s_per_gb", "receiver_s_per_gb", "mb_per_cpu_s")


@dataclasses.dataclass(frozen=True)
class Path:
    """A path. rtt_ms 0 is a veth pair without a rate limit."""
    rtt_ms: int
    loss: float
    jitter_ms: int = 0
    rate_bps: int = RATE_BPS

    def window(self):
        """Window in packets: two BDP, so that it never limits the rate."""
        return max(8192, 2 * self.rate_bps * self.rtt_ms // 1000 // 8 // 1500)

    def options(self):
        """Options of `longhaul link`."""
        jitter = ["--jitter", f"{self.jitter_ms}ms,reorder"] if self.jitter_ms else []
        return ["--rate", f"{self.rate_bps}bit", "--delay", f"{self.rtt_ms / 2:g}ms", "--loss", f"{self.loss * 100:g}%", *jitter]

    def __str__(self):
        if not self.rtt_ms:
            return "veth"
        rate = f"{self.rate_bps / 1e9:g} Gbit/s" if self.rate_bps >= 1e9 else f"{self.rate_bps / 1e6:g} Mbit/s"
        jitter = f", jitter {self.jitter_ms} ms" if self.jitter_ms else ""
        return f"{rate}, {self.rtt_ms} ms, loss {self.loss:g}{jitter}"


PATHS = [Path(0, 0.0)] + [Path(rtt_ms, loss) for rtt_ms in (38, 180) for loss in (0.0, 1e-4, 1e-3)]
PATHS += [Path(50, 0.0, jitter_ms=5, rate_bps=40_000_000)]
FIELDS = [field.name for field in dataclasses.fields(Path)]


@contextlib.contextmanager
def testbed(path, args, counters):
    """Creates the two hosts, joined by this path, for the block."""
    with hosts(SOURCE[0], TARGET[0]):
        if not path.rtt_ms:
            add_veth(SOURCE, TARGET)
            yield
            return
        with emulated_link(args.longhaul, SOURCE, TARGET, *path.options(), "--counters", counters,
                           *["--realtime"] * args.realtime):
            yield


def lateness_us(counters):
    """Lateness of the emulated link by its counters, after its end: median and p99 of the worse direction."""
    lines = counters.read_text().splitlines() if counters.exists() else []
    checks = [line["lateness"] for line in map(json.loads, lines) if line.get("record") == "timing_report"]
    return {key: max(check[key] for check in checks) for key in ("median_us", "p99_us")} if checks else None


class Longhaul:
    """The commands of the sender and the receiver, and the bytes at the receiver over time."""
    READY = "serving"

    def __init__(self, path, args, name):
        options = ["--window", path.window(), "--cc", name.removeprefix("longhaul ")]
        self.receiver_command = [args.longhaul, "udt", "bench", "--listen", f"{ADDRESS}:{PORT}", *options]
        self.sender_command = [args.longhaul, "udt", "bench", f"{ADDRESS}:{PORT}", "--time", f"{args.seconds}s",
                      "--interval", "100ms", "--json", *options]

    def received_points(self, client, _):
        """Returns (time, bytes received so far) pairs."""
        receiver, bytes_ = json.loads(client.output(timeout=120))["receiver"], 0
        points = [(receiver["started_at_s"], 0)]
        for number, interval in enumerate(receiver["intervals"], 1):
            bytes_ += interval["bytes"]
            points.append((receiver["started_at_s"] + number * 0.1, bytes_))
        return points


class Libudt:
    READY = "ready"

    def __init__(self, path, args, _):
        self.receiver_command = [args.libudt, "receive", PORT, path.window()]
        self.sender_command = [args.libudt, "send", ADDRESS, PORT, path.window()]

    def received_points(self, client, server):
        client.terminate()
        server.terminate()
        lines = server.read(server.out).splitlines()
        return [(float(at), int(bytes_)) for at, bytes_ in (line.split() for line in lines)]


def run(program, seconds):
    """Runs one transfer and returns its metrics."""
    with Program(TARGET[0], *program.receiver_command, ready=program.READY) as server, Program(SOURCE[0], *program.sender_command) as client:
        samples = sample_cpu(client, server, seconds)
        return metrics(program.received_points(client, server), samples)


def sample_cpu(client, server, seconds):
    """Samples the time and the CPU times of both processes, in the middle and at the end of a run."""
    started, samples = time.time(), []
    for sample_s in (seconds / 2, seconds):
        if client.wait(max(0.0, started + sample_s - time.time())):
            raise ProgramError(f"the sender ended: {client.log()[-400:]}")
        samples.append((time.time(), cpu_s(client.pid), cpu_s(server.pid)))
    return samples


def cpu_s(pid):
    """User and system time of all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def metrics(points, samples):
    (begin, *cpu_before), (end, *cpu_after) = samples
    bytes_ = bytes_at(points, end) - bytes_at(points, begin)
    gigabytes = max(bytes_, 1) / 1e9
    sender, receiver = (after - before for before, after in zip(cpu_before, cpu_after))
    return dict(zip(METRICS, (bytes_ * 8e-6 / (end - begin), sender / gigabytes, receiver / gigabytes,
                              bytes_ / 1e6 / (sender + receiver))))


def bytes_at(points, time_s):
    """Bytes received until then, by linear interpolation."""
    before = max((point for point in points if point[0] <= time_s), default=(0, 0))
    after = min((point for point in points if point[0] > time_s), default=before)
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (time_s - before[0]) / (after[0] - before[0])


def run_round(args, results, round_, programs, directory):
    """Measures all programs over all paths. Each round begins with the next program."""
    first = round_ % len(programs)
    for path in args.paths:
        rows, counters = [], directory / "link.jsonl"
        counters.unlink(missing_ok=True)
        with results.catch_errors(str(path)), testbed(path, args, counters):
            for name in programs[first:] + programs[:first]:
                program = (Libudt if name == LIBUDT else Longhaul)(path, args, name)
                with results.catch_errors(f"{path}: {name}", peer=name == LIBUDT):
                    rows.append({**dataclasses.asdict(path), "program": name, "round": round_, **run(program, args.seconds)})
        for row in rows:
            results.add(row | {"link_lateness": lateness_us(counters)})


def table_lines(rows):
    medians = {key: {metric: statistics.median(row[metric] for row in own) for metric in METRICS}
               for key, own in group_by(rows, *FIELDS, "program")}
    for (*fields, name), median in medians.items():
        path = Path(*fields)
        utilisation = f"{median['mbps'] * 1e6 / path.rate_bps / PAYLOAD:.3f}" if path.rtt_ms else ""
        libudt = medians.get((*fields, LIBUDT))
        ratio = f"{median['mb_per_cpu_s'] / libudt['mb_per_cpu_s']:.2f}" if libudt and name != LIBUDT else ""
        yield (path, name, f"{median['mbps']:.1f}", utilisation, f"{median['sender_s_per_gb']:.2f}",
               f"{median['receiver_s_per_gb']:.2f}", f"{median['mb_per_cpu_s']:.0f}", ratio)


def parse_arguments():
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="length of a run, of which the second half counts (20)")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE|VALUE", help="only paths with these values; KEY is rtt_ms (0, 38, 50, 180), loss or jitter_ms")
    parser.add_argument("--controls", type=comma_separated, default=["native", "bbr"], metavar="NAME,...", help="rate controls of longhaul (native,bbr)")
    parser.add_argument("--realtime", action="store_true", help="run the link with real-time priority")
    args = parse_args(parser, seconds=2)
    args.paths = [path for path in PATHS if all(matches(parser, path, selector) for selector in args.only)]
    if not args.paths:
        parser.error("--only selects no path")
    return args


def matches(parser, path, selector):
    key, equals, values = selector.partition("=")
    if not equals or key not in ("rtt_ms", "loss", "jitter_ms"):
        parser.error(f"--only {selector}: expected KEY=VALUE|VALUE, where KEY is rtt_ms, loss or jitter_ms")
    return getattr(path, key) in map(float, values.split("|"))


def main():
    args = parse_arguments()
    run_in_namespaces()
    results = Results(args, rmem_max=int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text()))
    programs = [f"longhaul {control}" for control in args.controls]
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        args.libudt = directory / "libudt"
        with results.catch_errors(LIBUDT, peer=True):
            run_command("c++", "-std=c++17", "-O2", "-o", args.libudt, pathlib.Path(__file__).with_name("libudt.cpp"), "-ludt", "-lpthread")
            programs.append(LIBUDT)
        for round_ in range(args.rounds):
            run_round(args, results, round_, programs, directory)
    heads = ("path", "program", "Mbit/s", "utilisation", "CPU s/GB: sender", "receiver", "MB per CPU s", "over libudt's")
    return results.finish(table(heads, table_lines(results.rows)))


if __name__ == "__main__":
    sys.exit(main())
