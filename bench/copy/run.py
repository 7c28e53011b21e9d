#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul copy compared with scp, rsync, rclone, aria2, GridFTP, bbcp and mscp, disk to disk over `longhaul link`.

    bench/copy/run.py [--parts matrix,utilisation,local,cpu,first,resume] [--only KEY=V|V]… [--rounds 5]
                      [--limit 60] [--minutes M] [--mscp PATH] [--bbcp PATH] [--resume]

The hosts are two namespaces with 1 Gbit/s between them, losses in both directions, and CUBIC. The script starts the servers
that the tools need. A run begins with its source outside the page cache, and ends when the target's file system is synced. Then
the copy is compared by SHA-256. The tools alternate. A run is killed if it takes longer than --limit, or has less than a fifth of
the data at half of that; its figure is then of the bytes that had arrived. --resume keeps the recorded runs and does only the
missing ones, so a long series may be interrupted. --quick uses small files, one round, and one path of each part.

 --only keys: rtt_ms, loss, buffers (default: the machine's; tuned: 2 BDP), job (large, small, tree), tool
 --estimate prints the least and the most time that the runs take, and runs nothing

Needs root, cgroups v2 and Linux 5.14. Programs that are not on this machine are skipped. scripts/setup --bench installs all
except mscp and bbcp, which no distribution has.
"""
import argparse, contextlib, json, os, pathlib, shutil, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import groups, jobs, measure, parts, tables, testbed, tools
from namespaces import run_command, run_in_namespaces, skip_benchmark
from results import Results, argument_parser, comma_separated, parse_args

NAME = "longhaul-bench-copy"
PROGRAMS = ("ssh", "rsync", "rclone", "aria2c", "nginx", "globus-url-copy", "globus-gridftp-server")


def parse_arguments():
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--parts", type=comma_separated, default=list(parts.PARTS), metavar="PART,...", help=f"parts of the benchmark ({','.join(parts.PARTS)})")
    add("--only", action="append", default=[], metavar="KEY=V|V", help="only cases with these values")
    add("--limit", type=float, default=60, help="time limit of a run, s (60)")
    add("--minutes", type=float, default=float("inf"), help="start no run after so many minutes")
    add("--large", type=float, default=2, metavar="GB", help="size of the job large (2)")
    add("--long", type=float, default=8, metavar="GB", help="size of the file of the part utilisation (8)")
    add("--link", help="another longhaul binary for the link")
    add("--mscp", default="mscp", metavar="PATH")
    add("--bbcp", default="bbcp", metavar="PATH")
    add("--realtime", action=argparse.BooleanOptionalAction, default=True,
        help="run the link with real-time priority, so that copying does not add delay")
    add("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="directory on the disk to copy from and to (/var/tmp)")
    add("--resume", action="store_true", help="keep the runs that DIR has, and do the missing ones")
    add("--estimate", action="store_true", help="print how long the runs take")
    args = parse_args(parser, limit=15)
    args.only = dict(parse_selector(parser, text) for text in args.only)
    if unknown := [part for part in args.parts if part not in parts.PARTS]:
        parser.error(f"no part is called {unknown[0]}; the parts are: {', '.join(parts.PARTS)}")
    args.large, args.long = int(args.large * 1e9), int(args.long * 1e9)
    args.link = args.link or args.longhaul
    return args


def parse_selector(parser, text):
    """Parses KEY=VALUE|VALUE of --only."""
    key, equals, values = text.partition("=")
    if not equals or key not in ("rtt_ms", "loss", "buffers", "job", "tool"):
        parser.error(f"--only {text}: expected KEY=VALUE|VALUE, where KEY is rtt_ms, loss, buffers, job or tool")
    return key, values.split("|")


@contextlib.contextmanager
def workspace(args):
    """Creates a directory and a control group for the block, and removes them after it."""
    print_plan(args)
    remove_stale(args.work)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{NAME}-{os.getpid()}-", dir=args.work))
    try:
        yield json.dumps([str(work), str(groups.Group(groups.own_cgroup() / work.name).path)])
    finally:
        remove(work)


def remove(work):
    """Removes the directory and the control groups of a benchmark."""
    cgroup = groups.own_cgroup() / work.name
    for path in (cgroup / testbed.SOURCE, cgroup / testbed.TARGET, cgroup):
        if path.exists():
            groups.Group(path).remove()
    shutil.rmtree(work)


def remove_stale(directory):
    """Removes what killed benchmarks have left."""
    for work in directory.glob(f"{NAME}-*-*"):
        if not pathlib.Path("/proc", work.name.split("-")[3]).exists():
            remove(work)


def available_cases(args):
    """Returns the cases of a round whose tools are on this machine, and the programs that are absent."""
    cases = parts.select(args.parts, args, args.only)
    if args.quick:
        first = {case.part: case.path for case in reversed(cases)}
        cases = [case for case in cases if case.path == first[case.part]]
    absent = {program for case in cases for program in case.tool.programs if not tools.find(program, args)}
    return [case for case in cases if not absent & set(case.tool.programs)], absent


def print_plan(args):
    """Prints the number of runs and how long they take. Exits if there is no run."""
    cases, _ = available_cases(args)
    if not cases:
        skip_benchmark("--parts and --only select no run")
    for part in args.parts:
        selected = [case for case in cases if case.part == part]
        bounds = [parts.duration_bounds_s(case, job_bytes(case.job, args), args.limit) for case in selected]
        least, most = (sum(bound[i] for bound in bounds) * args.rounds / 60 for i in (0, 1))
        print(f"{part}: {len(selected)} runs a round, {args.rounds} rounds, {least:.0f} to {max(least, most):.0f} minutes", file=sys.stderr, flush=True)


def job_bytes(job, args):
    return sum(size for _, size in jobs.file_sizes(job, args.quick, args.large, args.long))


class Bench:
    """Runs the selected cases, round by round."""

    def __init__(self, args, results, work, cgroup):
        self.args, self.results, self.work, self.cgroup = args, results, work, cgroup
        self.deadline = time.monotonic() + args.minutes * 60
        self.servers, self.root = work / "servers", work / "source"
        for directory in (self.servers, self.root):
            directory.mkdir()
        self.root.chmod(0o755), work.chmod(0o755)

    def run(self):
        cases, absent = available_cases(self.args)
        for program in sorted(absent):
            self.results.skip(program, "it is not on this machine")
        args, names = self.args, sorted({case.job for case in cases})
        print(f"creating {', '.join(names)} in {self.work}", file=sys.stderr, flush=True)
        self.jobs = {name: jobs.create(name, self.root, args.quick, args.large, args.long) for name in names}
        for round_ in range(args.rounds):
            self.run_round(cases, round_)

    def run_round(self, cases, round_):
        done = {row_key(row) for row in self.results.rows if "tool" in row}
        todo = [case for case in cases if row_key({**case.key(), "round": round_}) not in done]
        for part, path in dict.fromkeys((case.part, case.path) for case in todo):
            selected = [case for case in todo if (case.part, case.path) == (part, path)]
            first = round_ % len(selected)
            if time.monotonic() < self.deadline:
                self.run_path(path, selected[first:] + selected[:first], round_)

    def run_path(self, path, cases, round_):
        """Runs the cases of a round over one path."""
        rest = self.results, self.args, self.servers, self.root, self.cgroup
        with self.results.catch_errors(f"{cases[0].part}, {path or 'local'}"):
            with testbed.Testbed(path, *rest) if path else testbed.LocalTestbed(*rest) as bed:
                for case in cases:
                    if time.monotonic() < self.deadline and not self.results.skipped.keys() & set(case.tool.programs):
                        self.add_row(case, {**case.key(), "round": round_, "load": os.getloadavg()[0], **self.measure(bed, case)})
            if path:
                self.results.add({"part": cases[0].part, **vars(path), "round": round_, "link": bed.lateness()})

    def measure(self, bed, case):
        if self.has_timed_out(case):
            return {"outcome": "skipped", "message": "it timed out in an earlier round"}
        run = measure.resume if case.resumed else measure.run
        return run(bed, case.tool, self.jobs[case.job], self.args.limit)

    def has_timed_out(self, case):
        """Whether a case timed out in an earlier round. It would again, and its rate is known."""
        rows = [row for row in self.results.rows if row.get("tool") and case.key().items() <= row.items()]
        return any(row["outcome"] == "timeout" for row in rows)

    def add_row(self, case, row):
        self.results.add(row, tables.line(row))
        if row["outcome"] in ("failed", "corrupt"):
            record = self.results.fail if "longhaul" in case.tool.programs else self.results.skip
            record(tables.line(row).split(":")[0].strip(), row["message"] or "it failed without a message")


def row_key(row):
    return json.dumps([row.get(key) for key in ("part", "rtt_ms", "loss", "buffers", "job", "tool", "round")])


def machine_facts(args):
    """Settings of this machine that the figures depend on."""
    buffers = {name: testbed.default_buffer(name).split() for name in testbed.BUFFERS}
    return {"file_system": run_command("stat", "-f", "-c", "%T", args.work).strip(), "limit_s": args.limit, "congestion_control": "cubic",
            "default_buffers": ", ".join(f"{name} {' '.join(values)}" for name, values in buffers.items())}


def main():
    args = parse_arguments()
    if groups.own_cgroup() is None:
        skip_benchmark("cgroups v2 are needed, to count CPU time")
    if args.estimate:
        return print_plan(args)
    work, cgroup = map(pathlib.Path, json.loads(run_in_namespaces(lambda: workspace(args))))
    testbed.write_hosts_file(work)
    results = Results(args, [*PROGRAMS, args.bbcp, args.mscp], resume=args.resume, **machine_facts(args))
    # An interrupted series prints the table of its runs.
    with contextlib.suppress(SystemExit):
        Bench(args, results, work, cgroup).run()
    about = {"command": results.head["command"], **results.head["machine"]}
    return results.finish(tables.render(about | about.pop("versions") | tables.lateness(results.rows), results.rows))


if __name__ == "__main__":
    sys.exit(main())
