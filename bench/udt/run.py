#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul udt beside libudt 4.11: what a path gives, and what that costs the processor.

    bench/udt/run.py [--rounds 5] [--seconds 20] [--only KEY=VALUE|VALUE]... [--ours NAME,...] [--json] [--out DIR]

Two network namespaces, joined by veth (rtt_ms=0: nothing but the processor limits it) or by `longhaul link` at 1 Gbit/s with a
round trip of 38 or 180 ms, a BDP of queue and losses in both directions. From memory to memory over one connection, in turns.
All have the same windows and the same socket buffers.

What counts is the second half of each run, at the receiver; of CPU time user's and system's of both processes then, as the
scheduler counts it. What the kernel does in soft interrupts is charged to whom it interrupts, or to nobody. DIR/runs.jsonl gets
a line for each run, DIR/table.md the medians.

  --only 'rtt_ms=38|180' --only loss=0      some of the paths
  --ours bbr                                some of ours, as `longhaul udt bench --control NAME`

Needs root, c++ and libudt-dev. It and all that it started are in namespaces of their own, which the kernel removes with it.
"""
import argparse, dataclasses, json, os, pathlib, platform, shutil, signal, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/longhaul"
INSIDE = "LONGHAUL_BENCH_UDT"
THEIRS = "libudt"
SOURCE, TARGET = "source", "target"
ADDRESS = {SOURCE: "10.78.0.1", TARGET: "10.78.0.2"}
PORT = 9000
RATE_BPS = 1_000_000_000
# Of an IP packet of 1500 bytes, what UDT carries.
PAYLOAD = 1456 / 1500


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


class Testbed:
    """Up within the block."""

    def __init__(self, path, args, directory):
        self.path, self.args, self.record, self.link = path, args, directory / "link.jsonl", None

    def __enter__(self):
        try:
            for host in (SOURCE, TARGET):
                ip("netns", "add", host)
                ip("-n", host, "link", "set", "lo", "up")
            self.start_link() if self.path.rtt_ms else self.join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self):
        ip("link", "add", "wan0", "netns", SOURCE, "type", "veth", "peer", "name", "wan0", "netns", TARGET)
        for host in (SOURCE, TARGET):
            ip("-n", host, "address", "add", f"{ADDRESS[host]}/30", "dev", "wan0")
            ip("-n", host, "link", "set", "wan0", "up")

    def start_link(self):
        self.link = subprocess.Popen(
            [self.args.longhaul, "link", "--rate", f"{RATE_BPS}bit", "--delay", f"{self.path.rtt_ms / 2:g}ms",
             "--loss", f"{self.path.loss * 100:g}%", "--counters", self.record, *["--realtime"] * self.args.realtime,
             "--left", f"{SOURCE}:wan0:{ADDRESS[SOURCE]}/30", "--right", f"{TARGET}:wan0:{ADDRESS[TARGET]}/30"],
            stderr=subprocess.PIPE, text=True)
        said = until(self.link.stderr, lambda line: line.strip().endswith("ready"))
        if said is None:
            raise RuntimeError("longhaul link did not start")

    def lateness_us(self):
        """By how much the link itself was late, after its end: median and p99 of the worse direction."""
        lines = self.record.read_text().splitlines() if self.link else []
        checks = [line["lateness"] for line in map(json.loads, lines) if line.get("record") == "selfcheck"]
        return {key: max(check[key] for check in checks) for key in ("median_us", "p99_us")} if checks else None

    def __exit__(self, *_):
        if self.link:
            self.link.terminate()
            self.link.communicate()
        for host in (SOURCE, TARGET):
            subprocess.run(["ip", "netns", "del", host], check=False, stderr=subprocess.DEVNULL)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def until(lines, wanted):
    """The first such line, or None if there is none."""
    return next(filter(wanted, lines), None)


def start(host, command, **streams):
    return subprocess.Popen(["ip", "netns", "exec", host, *map(str, command)], stdin=subprocess.DEVNULL, text=True, **streams)


class Subject:
    """A pair of programs: receives() and sends() are their commands, came() the bytes at the receiver over time."""

    def __init__(self, path, args):
        self.path, self.args = path, args

    def run(self):
        """The figures of one run."""
        server = start(TARGET, self.receives(), stderr=subprocess.PIPE, stdout=self.server_says())
        client = None
        try:
            if until(server.stderr, lambda line: self.READY in line) is None:
                raise RuntimeError(f"{self.receives()[0]} does not receive")
            client = start(SOURCE, self.sends(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            looks = self.watch(client, server)
            return figures(self.came(client, server), looks)
        finally:
            for process in filter(None, (client, server)):
                process.kill()
                process.communicate()

    def watch(self, client, server):
        """The time and both CPU times, in the middle and at the end."""
        began, looks = time.time(), []
        for moment in (self.args.seconds / 2, self.args.seconds):
            time.sleep(max(0.0, began + moment - time.time()))
            if client.poll() is not None:
                raise RuntimeError(f"the sender ended: {client.communicate()[1][-400:]}")
            looks.append((time.time(), cpu_s(client.pid), cpu_s(server.pid)))
        return looks


class Ours(Subject):
    READY = "serving"

    def __init__(self, path, args, control):
        super().__init__(path, args)
        self.options = ["--window", path.window(), "--control", control]

    def receives(self):
        return [self.args.longhaul, "udt", "bench", "--at", f"{ADDRESS[TARGET]}:{PORT}", *self.options]

    def sends(self):
        return [self.args.longhaul, "udt", "bench", f"{ADDRESS[TARGET]}:{PORT}", "--time", f"{self.args.seconds}s",
                "--interval", "100ms", "--json", *self.options]

    def server_says(self):
        return subprocess.DEVNULL

    def came(self, client, _):
        said, wrong = client.communicate(timeout=120)
        if client.returncode:
            raise RuntimeError(wrong[-400:])
        receiver, bytes_ = json.loads(said)["receiver"], 0
        points = [(receiver["began_s"], 0)]
        for number, interval in enumerate(receiver["intervals"], 1):
            bytes_ += interval["bytes"]
            points.append((receiver["began_s"] + number * 0.1, bytes_))
        return points


class Theirs(Subject):
    READY = "ready"

    def receives(self):
        return [self.args.libudt, "receive", PORT, self.path.window()]

    def sends(self):
        return [self.args.libudt, "send", ADDRESS[TARGET], PORT, self.path.window()]

    def server_says(self):
        return subprocess.PIPE

    def came(self, client, server):
        client.kill()
        server.terminate()
        lines = server.communicate()[0].splitlines()
        return [(float(at), int(bytes_)) for at, bytes_ in (line.split() for line in lines)]


def subject(name, path, args):
    return Theirs(path, args) if name == THEIRS else Ours(path, args, name.removeprefix("longhaul "))


def cpu_s(pid):
    """User and system time of all threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def figures(points, looks):
    (begin, *cpu_before), (end, *cpu_after) = looks
    bytes_ = at(points, end) - at(points, begin)
    gigabytes = max(bytes_, 1) / 1e9
    sender, receiver = (after - before for before, after in zip(cpu_before, cpu_after))
    return {"mbps": bytes_ * 8e-6 / (end - begin), "sender_s_per_gb": sender / gigabytes,
            "receiver_s_per_gb": receiver / gigabytes, "mb_per_cpu_s": bytes_ / 1e6 / (sender + receiver)}


def at(points, moment):
    """Bytes by then, on straight lines between the points."""
    before = max((point for point in points if point[0] <= moment), default=(0, 0))
    after = min((point for point in points if point[0] > moment), default=before)
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (moment - before[0]) / (after[0] - before[0])


def rounds(args, directory, record):
    """Every run, as a row; who begins changes from round to round."""
    rows = []
    for turn in range(args.rounds):
        for path in args.paths:
            begin = turn % len(args.subjects)
            with Testbed(path, args, directory) as bed:
                mine = [one(args, path, name, turn) for name in args.subjects[begin:] + args.subjects[:begin]]
            for row in mine:
                row["link_late"] = bed.lateness_us()
                rows.append(row)
                print(json.dumps(row), file=record, flush=True)
    return rows


def one(args, path, name, turn):
    row = {**dataclasses.asdict(path), "subject": name, "round": turn, "load": os.getloadavg()[0]}
    try:
        row |= subject(name, path, args).run()
        said = f"{row['mbps']:.1f} Mbit/s, {row['mb_per_cpu_s']:.0f} MB a CPU second"
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        row["failed"] = said = str(error)
    print(f"{turn + 1}/{args.rounds} {path}: {name}: {said}", file=sys.stderr, flush=True)
    return row


def medians(rows):
    """By path and subject."""
    found = {}
    for row in (row for row in rows if "failed" not in row):
        mine = found.setdefault((Path(row["rtt_ms"], row["loss"]), row["subject"]), {})
        for key in ("mbps", "sender_s_per_gb", "receiver_s_per_gb", "mb_per_cpu_s"):
            mine.setdefault(key, []).append(row[key])
    return {place: {key: statistics.median(all_) for key, all_ in mine.items()} for place, mine in found.items()}


def table(rows):
    found = medians(rows)
    lines = ["| path | | Mbit/s | of the path | CPU s/GB: sender | receiver | MB a CPU s | times libudt's |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    for (path, name), median in found.items():
        used = f"{median['mbps'] * 1e6 / RATE_BPS / PAYLOAD:.3f}" if path.rtt_ms else ""
        theirs = found.get((path, THEIRS))
        ratio = f"{median['mb_per_cpu_s'] / theirs['mb_per_cpu_s']:.2f}" if theirs and name != THEIRS else ""
        lines.append(f"| {path} | {name} | {median['mbps']:.1f} | {used} | {median['sender_s_per_gb']:.2f} | "
                     f"{median['receiver_s_per_gb']:.2f} | {median['mb_per_cpu_s']:.0f} | {ratio} |")
    return "\n".join(lines)


def machine(args):
    return {"kernel": platform.release(), "CPUs": os.cpu_count(), "load now": os.getloadavg()[0], "rounds": args.rounds,
            "seconds": args.seconds, "rmem_max": int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text())}


def arguments():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=5, help="of all paths (5)")
    parse.add_argument("--seconds", type=float, default=20, help="of a run, of which the second half counts (20)")
    parse.add_argument("--only", action="append", default=[], metavar="KEY=VALUE|VALUE", help="paths with these: rtt_ms (0, 38, 180), loss")
    parse.add_argument("--ours", default="native,bbr", metavar="NAME,...", help="rate controls of ours (native,bbr)")
    parse.add_argument("--json", action="store_true", help="rows and medians as JSON instead of a table")
    parse.add_argument("--realtime", action="store_true", help="the link runs before all ordinary threads")
    parse.add_argument("--longhaul", type=pathlib.Path, default=RELEASE, metavar="PATH")
    parse.add_argument("--out", type=pathlib.Path, default=ROOT / "out/bench/udt", metavar="DIR")
    args = parse.parse_args()
    args.paths = [path for path in PATHS if all(matches(parse, path, word) for word in args.only)]
    if not args.paths:
        parse.error("no path is left of --only")
    args.subjects = [*(f"longhaul {control}" for control in args.ours.split(",")), THEIRS]
    args.longhaul = args.longhaul.resolve()
    if not os.access(args.longhaul, os.X_OK):
        parse.error(f"no program at {args.longhaul}: build it (scripts/cargo build --release) or give --longhaul PATH")
    return args


def matches(parse, path, word):
    key, equals, values = word.partition("=")
    if not equals or key not in ("rtt_ms", "loss"):
        parse.error(f"--only {word}: want KEY=VALUE|VALUE, where KEY is rtt_ms or loss")
    return getattr(path, key) in map(float, values.split("|"))


def compiled(directory):
    program = directory / "libudt"
    source = pathlib.Path(__file__).with_name("libudt.cpp")
    done = subprocess.run(["c++", "-std=c++17", "-O2", "-o", program, source, "-ludt", "-lpthread"])
    if done.returncode:
        sys.exit("bench/udt needs c++ and libudt-dev")
    return program


def outside():
    """The bench in namespaces of its own, so that the kernel ends all of it with this process."""
    if os.geteuid() != 0:
        print("bench/udt needs root for network namespaces", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = tempfile.mkdtemp(prefix="longhaul-bench-udt-")
    inside = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
                               "--mount-proc", sys.executable, *sys.argv], env=os.environ | {INSIDE: directory}, start_new_session=True)
    try:
        return inside.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        inside.kill()
        inside.wait()
        shutil.rmtree(directory)


def main():
    args = arguments()
    if INSIDE not in os.environ:
        return outside()
    directory = pathlib.Path(os.environ.pop(INSIDE))
    # Names of namespaces are kept there.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    args.libudt = compiled(directory)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "runs.jsonl", "w") as record:
        rows = rounds(args, directory, record)
    (args.out / "table.md").write_text(table(rows) + "\n")
    print(json.dumps({"host": machine(args), "rows": rows}, indent=1) if args.json else table(rows))
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
