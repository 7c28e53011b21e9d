#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul copy beside scp, rsync, rclone, aria2, GridFTP, bbcp and mscp, disk to disk over `longhaul link`.

    bench/copy/run.py [--parts matrix,utilisation,local,cpu,first,resume] [--only KEY=V|V]… [--rounds 5]
                      [--limit 60] [--minutes M] [--mscp PATH] [--bbcp PATH] [--again]

Two namespaces, 1 Gbit/s between them, losses in both directions, CUBIC; servers are started here and end with it. Each
run begins with its source out of the page cache and ends when its target's file system is synced; what came is compared
by SHA-256 after that. Tools take turns, round by round. A run that takes longer than --limit, or has less than a fifth at
half of it, is killed, and what had come by then is its figure. --again keeps the runs that are there and does only the
others, so a long series may be interrupted. --quick: small files, one round, one path of each part.

 --only keys: rtt_ms, loss, buffers (default: the machine's; tuned: 2 BDP), job (large, small, tree), tool
 --estimate prints how long it takes at the least and at the most, and does nothing

Needs root, cgroups v2 and Linux 5.14. What is not on this machine is left out with a line; scripts/setup --bench installs
all but mscp and bbcp, which no distribution has.
"""
import argparse, contextlib, json, os, pathlib, shutil, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import groups, jobs, measure, parts, tables, testbed, tools
from namespaces import run_command, run_in_namespaces, skip_benchmark
from results import Results, argument_parser, comma_separated, parse_args

NAME = "longhaul-bench-copy"
PROGRAMS = ("ssh", "rsync", "rclone", "aria2c", "nginx", "globus-url-copy", "globus-gridftp-server")


def arguments():
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--parts", type=comma_separated, default=list(parts.PARTS), metavar="PART,...")
    add("--only", action="append", default=[], metavar="KEY=V|V")
    add("--limit", type=float, default=60, help="seconds a run may take (60)")
    add("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    add("--large", type=float, default=2, metavar="GB", help="the one large file (2)")
    add("--long", type=float, default=8, metavar="GB", help="the file of the part utilisation (8)")
    add("--link", help="another longhaul that makes the link")
    add("--mscp", default="mscp")
    add("--bbcp", default="bbcp")
    add("--realtime", action=argparse.BooleanOptionalAction, default=True,
        help="the link goes before whatever else this machine does, so that copying does not make the path longer")
    add("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="where files are copied: a disk (/var/tmp)")
    add("--again", action="store_true", help="keep the runs that DIR has and do those that are missing")
    add("--estimate", action="store_true")
    args = parse_args(parser, limit=15)
    args.only = dict(divide(parser, word) for word in args.only)
    if unknown := [part for part in args.parts if part not in parts.PARTS]:
        parser.error(f"no part is called {unknown[0]}; there are: {', '.join(parts.PARTS)}")
    args.large, args.long = int(args.large * 1e9), int(args.long * 1e9)
    args.link = args.link or args.longhaul
    return args


def divide(parser, word):
    key, equals, values = word.partition("=")
    if not equals or key not in ("rtt_ms", "loss", "buffers", "job", "tool"):
        parser.error(f"--only {word}: want KEY=VALUE|VALUE, where KEY is rtt_ms, loss, buffers, job or tool")
    return key, values.split("|")


@contextlib.contextmanager
def places(args):
    """A directory and a group of ours within the block; whatever of them is left goes at its end."""
    tell(args)
    remove_dead(args.work)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{NAME}-{os.getpid()}-", dir=args.work))
    try:
        yield json.dumps([str(work), str(groups.Group(groups.place() / work.name).path)])
    finally:
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
    """The cells of a round, without tools that are not on this machine; the programs that are not."""
    cells = parts.chosen(args.parts, args, args.only)
    if args.quick:
        first = {cell.part: cell.path for cell in reversed(cells)}
        cells = [cell for cell in cells if cell.path == first[cell.part]]
    absent = {program for cell in cells for program in cell.tool.programs if not tools.found(program, args)}
    return [cell for cell in cells if not absent & set(cell.tool.programs)], absent


def tell(args):
    """What is going to be, and how long it takes; exits where there is nothing."""
    cells, _ = present(args)
    if not cells:
        skip_benchmark("nothing is left of --parts and --only")
    for part in args.parts:
        mine = [cell for cell in cells if cell.part == part]
        bounds = [parts.cost_s(cell, size(cell.job, args), args.limit) for cell in mine]
        least, most = (sum(bound[i] for bound in bounds) * args.rounds / 60 for i in (0, 1))
        print(f"{part}: {len(mine)} runs a round, {args.rounds} rounds, {least:.0f} to {max(least, most):.0f} minutes", file=sys.stderr, flush=True)


def size(job, args):
    return sum(size for _, size in jobs.sizes(job, args.quick, args.large, args.long))


class Bench:
    """The runs that are asked for, in rounds."""

    def __init__(self, args, results, work, cgroup):
        self.args, self.results, self.work, self.cgroup = args, results, work, cgroup
        self.until = time.monotonic() + args.minutes * 60
        self.servers, self.root = work / "servers", work / "source"
        for place in (self.servers, self.root):
            place.mkdir()
        self.root.chmod(0o755), work.chmod(0o755)

    def run(self):
        cells, absent = present(self.args)
        for program in sorted(absent):
            self.results.skip(program, "it is not on this machine")
        args, wanted = self.args, sorted({cell.job for cell in cells})
        print(f"making {', '.join(wanted)} in {self.work}", file=sys.stderr, flush=True)
        self.jobs = {name: jobs.make(name, self.root, args.quick, args.large, args.long) for name in wanted}
        for turn in range(args.rounds):
            self.round(cells, turn)

    def round(self, cells, turn):
        done = {identity(row) for row in self.results.rows if "tool" in row}
        todo = [cell for cell in cells if identity({**cell.key(), "round": turn}) not in done]
        for path in dict.fromkeys((cell.part, cell.path) for cell in todo):
            mine = [cell for cell in todo if (cell.part, cell.path) == path]
            begin = turn % len(mine)
            if time.monotonic() < self.until:
                self.over(path[1], mine[begin:] + mine[:begin], turn)

    def over(self, path, cells, turn):
        """The runs of a round over one path."""
        rest = self.results, self.args, self.servers, self.root, self.cgroup
        with self.results.catch_errors(f"{cells[0].part}, {path or 'here'}"):
            with testbed.Testbed(path, *rest) if path else testbed.Here(*rest) as bed:
                for cell in cells:
                    if time.monotonic() < self.until and not self.results.skipped.keys() & set(cell.tool.programs):
                        self.keep(cell, {**cell.key(), "round": turn, "load": os.getloadavg()[0], **self.measure(bed, cell)})
            if path:
                self.results.add({"part": cells[0].part, **vars(path), "round": turn, "link": bed.lateness()})

    def measure(self, bed, cell):
        if self.hopeless(cell):
            return {"end": "left out", "said": "cut in the round before"}
        act = measure.resume if cell.resumed else measure.run
        return act(bed, cell.tool, self.jobs[cell.job], self.args.limit)

    def hopeless(self, cell):
        """What was cut once would be again, and is told by its rate anyway."""
        mine = [row for row in self.results.rows if row.get("tool") and cell.key().items() <= row.items()]
        return any(row["end"] == "cut" for row in mine)

    def keep(self, cell, row):
        self.results.add(row, tables.line(row))
        if row["end"] in ("failed", "wrong"):
            note = self.results.fail if "longhaul" in cell.tool.programs else self.results.skip
            note(tables.line(row).split(":")[0].strip(), row["said"] or "it failed without a word")


def identity(row):
    return json.dumps([row.get(key) for key in ("part", "rtt_ms", "loss", "buffers", "job", "tool", "round")])


def facts(args):
    buffers = {name: testbed.machine_buffer(name).split() for name in testbed.BUFFERS}
    return {"file_system": run_command("stat", "-f", "-c", "%T", args.work).strip(), "limit_s": args.limit, "congestion_control": "cubic",
            "buffers_by_default": ", ".join(f"{name} {' '.join(words)}" for name, words in buffers.items())}


def main():
    args = arguments()
    if groups.place() is None:
        skip_benchmark("cgroups of version 2, which count CPU time, are needed")
    if args.estimate:
        return tell(args)
    work, cgroup = map(pathlib.Path, json.loads(run_in_namespaces(lambda: places(args))))
    testbed.name_hosts(work)
    results = Results(args, [*PROGRAMS, args.bbcp, args.mscp], resume=args.again, **facts(args))
    # Whoever interrupts it wants to see what it has.
    with contextlib.suppress(SystemExit):
        Bench(args, results, work, cgroup).run()
    about = {"command": results.head["command"], **results.head["machine"]}
    return results.finish(tables.render(about | about.pop("versions") | tables.lateness(results.rows), results.rows))


if __name__ == "__main__":
    sys.exit(main())
