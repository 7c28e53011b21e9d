#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul copy beside scp, rsync, rclone, aria2, GridFTP, bbcp and mscp, disk to disk over `longhaul link`.

    bench/copy/run.py [--quick] [--parts matrix,utilisation,local,cpu,first,resume,limit] [--only KEY=V|V]… [--rounds 5]
                      [--limit 60] [--minutes M] [--longhaul PATH] [--mscp PATH] [--bbcp PATH] [--out DIR] [--again]

Two namespaces, 1 Gbit/s between them, losses in both directions, CUBIC; servers are started here and end with it. Each
run begins with its source out of the page cache and ends when its target's file system is synced; what came is compared
by SHA-256 after that. Tools take turns, round by round. A run that takes longer than --limit, or has less than a fifth at
half of it, is killed, and what had come by then is its figure. DIR/runs.jsonl has a line a run, DIR/table.md the medians.
--again keeps the runs that are there and does only the others, so a long series may be interrupted.

 --only keys: rtt_ms, loss, buffers (default: the machine's; tuned: 2 BDP), job (large, small, tree), tool
 --estimate prints how long it takes at the least and at the most, and does nothing

Needs root, cgroups v2 and Linux 5.14. What is not on this machine is left out with a line; scripts/setup --bench installs
all but mscp and bbcp, which no distribution has.
"""
import argparse, json, os, pathlib, platform, shutil, signal, subprocess, sys, tempfile, time

sys.dont_write_bytecode = True
import groups, jobs, measure, parts, tables, testbed, tools

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/longhaul"
INSIDE = "BENCH_COPY_INSIDE"
NAME = "longhaul-bench-copy"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="small files, one round: does it work?")
    add("--parts", default=",".join(parts.PARTS))
    add("--only", action="append", default=[], metavar="KEY=V|V")
    add("--rounds", type=int, default=5)
    add("--limit", type=float, default=60, help="seconds a run may take (60)")
    add("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    add("--large", type=float, default=2, metavar="GB", help="the one large file (2)")
    add("--long", type=float, default=8, metavar="GB", help="the file of the part utilisation (8)")
    add("--longhaul", default=str(RELEASE))
    add("--link", help="another longhaul that makes the link")
    add("--mscp", default="mscp")
    add("--bbcp", default="bbcp")
    add("--realtime", action=argparse.BooleanOptionalAction, default=True,
        help="the link goes before whatever else this machine does, so that copying does not make the path longer")
    add("--out", type=pathlib.Path, default=ROOT / "out/bench/copy")
    add("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="where files are copied: a disk (/var/tmp)")
    add("--again", action="store_true", help="keep the runs that DIR has and do those that are missing")
    add("--estimate", action="store_true")
    return parser, parser.parse_args()


def checked(parser, args):
    """Exits where something can't be as it is asked for."""
    args.only = dict(divide(parser, word) for word in args.only)
    args.parts = args.parts.split(",")
    if unknown := [part for part in args.parts if part not in parts.PARTS]:
        parser.error(f"no part is called {unknown[0]}; there are: {', '.join(parts.PARTS)}")
    args.rounds = 1 if args.quick else args.rounds
    args.large, args.long = int(args.large * 1e9), int(args.long * 1e9)
    args.longhaul = os.path.abspath(args.longhaul)
    args.link = args.link or args.longhaul
    if not os.access(args.longhaul, os.X_OK):
        parser.error(f"no program at {args.longhaul}: build it (scripts/cargo build --release) or give --longhaul PATH")
    return args


def divide(parser, word):
    key, equals, values = word.partition("=")
    if not equals or key not in ("rtt_ms", "loss", "buffers", "job", "tool"):
        parser.error(f"--only {word}: want KEY=VALUE|VALUE, where KEY is rtt_ms, loss, buffers, job or tool")
    return key, values.split("|")


def outside(args):
    """The bench in namespaces of its own, so that the kernel ends all of it with this process; then what it left on disk."""
    if os.geteuid() != 0:
        sys.exit("bench/copy needs root for network namespaces")
    if groups.place() is None:
        sys.exit("bench/copy needs cgroups of version 2, which count CPU time")
    remove_dead(args.work)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{NAME}-{os.getpid()}-", dir=args.work))
    cgroup = groups.Group(groups.place() / work.name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    inside = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv],
                              env=os.environ | {INSIDE: json.dumps([str(work), str(cgroup.path)])}, start_new_session=True)
    try:
        return inside.wait()
    except KeyboardInterrupt:
        os.killpg(inside.pid, signal.SIGINT)
        inside.wait(timeout=30)
        return 130
    finally:
        inside.kill()
        inside.wait()
        remove(work)


def remove(work):
    """A bench's files and groups."""
    cgroup = groups.place() / work.name
    for path in (cgroup / testbed.SOURCE, cgroup / testbed.TARGET, cgroup):
        if path.exists():
            groups.Group(path).remove()
    shutil.rmtree(work)


def remove_dead(directory):
    """What benches left that were killed."""
    for work in directory.glob(f"{NAME}-*-*"):
        if not pathlib.Path("/proc", work.name.split("-")[3]).exists():
            remove(work)


def present(args):
    """The cells of a round, without tools that are not on this machine."""
    cells, absent = parts.chosen(args.parts, args, args.only), set()
    for cell in cells:
        absent |= {program for program in cell.tool.programs if not tools.found(program, args)}
    return [cell for cell in cells if not absent & set(cell.tool.programs)], absent


def tell(args):
    """What is going to be, and how long it takes; exits where there is nothing."""
    cells, absent = present(args)
    for program in sorted(absent):
        say(f"{program}: not on this machine, what needs it is left out")
    if not cells:
        sys.exit("bench/copy: nothing is left of --parts and --only")
    for part in args.parts:
        mine = [cell for cell in cells if cell.part == part]
        bounds = [parts.cost_s(cell, size(cell.job, args), args.limit) for cell in mine]
        least, most = (sum(bound[i] for bound in bounds) * args.rounds / 60 for i in (0, 1))
        say(f"{part}: {len(mine)} runs a round, {args.rounds} rounds, {least:.0f} to {max(least, most):.0f} minutes")


def size(job, args):
    return sum(size for _, size in jobs.sizes(job, args.quick, args.large, args.long))


class Bench:
    """The runs that are asked for, in rounds."""

    def __init__(self, args, work, cgroup):
        self.args, self.work, self.cgroup = args, work, cgroup
        self.until = time.monotonic() + args.minutes * 60
        self.record = args.out / "runs.jsonl"
        self.rows = earlier(self.record) if args.again else []
        self.servers, self.root = work / "servers", work / "source"
        for place in (self.servers, self.root):
            place.mkdir()
        self.root.chmod(0o755), work.chmod(0o755)

    def run(self):
        cells, _ = present(self.args)
        self.jobs = self.make({cell.job for cell in cells})
        self.args.out.mkdir(parents=True, exist_ok=True)
        with open(self.record, "a" if self.args.again else "w") as self.out:
            try:
                for turn in range(self.args.rounds):
                    self.round(cells, turn)
            finally:
                self.show()

    def make(self, names):
        say(f"making {', '.join(sorted(names))} in {self.work}")
        return {name: jobs.make(name, self.root, self.args.quick, self.args.large, self.args.long) for name in sorted(names)}

    def round(self, cells, turn):
        done = {identity(row) for row in self.rows if "tool" in row}
        todo = [cell for cell in cells if identity({**cell.key(), "round": turn}) not in done]
        for path in dict.fromkeys((cell.part, cell.path) for cell in todo):
            mine = [cell for cell in todo if (cell.part, cell.path) == path]
            begin = turn % len(mine)
            if time.monotonic() < self.until:
                self.over(path[1], mine[begin:] + mine[:begin], turn)

    def over(self, path, cells, turn):
        """The runs of a round over one path."""
        bed = (testbed.Testbed(path, self.args, self.servers, self.root, self.cgroup) if path
               else testbed.Here(self.args, self.servers, self.root, self.cgroup))
        with bed:
            for cell in cells:
                if time.monotonic() < self.until:
                    self.keep({**cell.key(), "round": turn, "load": os.getloadavg()[0], **self.measure(bed, cell)})
        if path:
            self.keep({"part": cells[0].part, **vars(path), "round": turn, "link": bed.lateness()})

    def measure(self, bed, cell):
        if self.hopeless(cell):
            return {"end": "left out", "said": "cut in the round before"}
        act = measure.resume if cell.resumed else measure.run
        return act(bed, cell.tool, self.jobs[cell.job], self.args.limit)

    def hopeless(self, cell):
        """What was cut once would be again, and is told by its rate anyway."""
        mine = [row for row in self.rows if row.get("tool") and cell.key().items() <= row.items()]
        return any(row["end"] == "cut" for row in mine)

    def keep(self, row):
        self.rows.append(row)
        print(json.dumps(row), file=self.out, flush=True)
        if "tool" in row:
            say(tables.line(row))

    def ours_failed(self):
        return any(row["end"] in ("failed", "wrong") for row in self.rows if row.get("tool", "").startswith("longhaul"))

    def show(self):
        text = "\n".join(tables.render(machine(self.args) | tables.lateness(self.rows), self.rows))
        (self.args.out / "table.md").write_text(text + "\n")
        print(text)


def earlier(record):
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def identity(row):
    return json.dumps([row.get(key) for key in ("part", "rtt_ms", "loss", "buffers", "job", "tool", "round")])


def machine(args):
    programs = ("longhaul", "ssh", "rsync", "rclone", "aria2c", "nginx", "globus-url-copy", "globus-gridftp-server", "bbcp", "mscp")
    versions = {program: tools.version(program, args) for program in programs if tools.found(program, args)}
    system = subprocess.run(["stat", "-f", "-c", "%T", args.work], capture_output=True, text=True).stdout.strip()
    buffers = {name: testbed.machine_buffer(name).split() for name in testbed.BUFFERS}
    return {"kernel": platform.release(), "CPUs": os.cpu_count(), "load now": os.getloadavg()[0], "file system": system,
            "buffers by default": ", ".join(f"{name} {' '.join(words)}" for name, words in buffers.items()),
            "congestion control": "cubic", "limit of a run": f"{args.limit:g} s", "rounds": args.rounds,
            "started as": " ".join(sys.argv[1:]) or "no flags", **versions}


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    args = checked(*arguments())
    if INSIDE not in os.environ:
        tell(args)
        return 0 if args.estimate else outside(args)
    work, cgroup = map(pathlib.Path, json.loads(os.environ.pop(INSIDE)))
    testbed.cover_machine(work)
    bench = Bench(args, work, cgroup)
    try:
        bench.run()
    except KeyboardInterrupt:
        return 130
    return 1 if bench.ours_failed() else 0


if __name__ == "__main__":
    sys.exit(main())
