# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shared by all benchmarks: command-line options, a description of the machine, the results file, and tables."""
import argparse, contextlib, datetime, json, os, pathlib, platform, shlex, shutil, statistics, subprocess, sys

from namespaces import ProgramError, skip_benchmark

ROOT = pathlib.Path(__file__).resolve().parents[1]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
NAME = pathlib.Path(sys.argv[0]).resolve().parent.name
# The share of a packet of 1500 bytes that is TCP payload, with timestamps.
PAYLOAD = 1448 / 1500
# The flag that prints a program's version, where that is not --version.
VERSION_FLAGS = {"ssh": "-V", "bbcp": "-#", "nginx": "-v", "haproxy": "-v", "danted": "-v", "squid": "-v", "mscp": "-h", "tcptrace": "-v",
                 "gost": "-V", "globus-url-copy": "-version"}
# The last bytes of a results file.
FILE_END = "\n ]\n}\n"


def argument_parser(doc, rounds=5):
    """Returns a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(prog=f"bench/{NAME}/run.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run one short round, to see that the benchmark works here")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"number of rounds ({rounds})")
    parser.add_argument("--longhaul", type=pathlib.Path, default=os.environ.get("LONGHAUL", RELEASE / "longhaul"), metavar="PATH",
                        help="the binary to measure (LONGHAUL, or the release build)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/bench" / NAME, metavar="DIR", help=f"directory for results (out/bench/{NAME})")
    return parser


def parse_args(parser, required=(), **quick):
    """Parses the command line. Skips the benchmark if a required program is absent; `quick` has other defaults for --quick."""
    args = parser.parse_args()
    if args.quick:
        parser.set_defaults(rounds=1, **quick)
        args = parser.parse_args()
    args.longhaul, args.out = args.longhaul.resolve(), args.out.resolve()
    if not os.access(args.longhaul, os.X_OK):
        skip_benchmark(f"no program at {args.longhaul}: build it (scripts/cargo build --release) or give --longhaul PATH")
    if missing := [program for program in required if not shutil.which(program)]:
        skip_benchmark(f"not on this machine: {', '.join(missing)}")
    return args


def comma_separated(text):
    """The argparse type of an option that takes NAME,NAME,..."""
    return text.split(",")


def machine_info(programs):
    """Describes this machine and the versions of these programs, on which the figures depend."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(": ", 1)[1] for line in cpuinfo if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": models[0] if models else platform.machine(), "cores": os.cpu_count(), "memory_gb": round(memory / 1e9, 1),
            "kernel": platform.release(), "load": os.getloadavg()[0],
            "versions": {pathlib.Path(program).name: version(program) for program in map(str, programs) if shutil.which(program)}}


def version(program):
    """Returns the first line that a program prints when asked for its version."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program, VERSION_FLAGS.get(pathlib.Path(program).name, "--version")], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=10)
        return next(iter((done.stdout + done.stderr).strip().splitlines()), "")


class Results:
    """Rows of measurements, kept in DIR/results.json, which is complete after each row. `resume` keeps the rows that it has."""

    def __init__(self, args, programs=(), resume=False, **facts):
        self.file, self.skipped, self.failed = args.out / "results.json", {}, {}
        self.rows = json.loads(self.file.read_text())["rows"] if resume and self.file.exists() else []
        self.head = {"command": shlex.join([f"bench/{NAME}/run.py", *sys.argv[1:]]),
                     "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "machine": machine_info([args.longhaul, *programs]) | facts}
        args.out.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self):
        head = json.dumps(self.head | {"skipped": self.skipped, "failed": self.failed}, indent=1)[:-2]
        rows = ",".join(f"\n  {json.dumps(row)}" for row in self.rows)
        self.file.write_text(f'{head},\n "rows": [{rows}{FILE_END}')

    def add(self, row, message=None):
        """Appends the row of one run to the file, and prints `message`, or the row itself."""
        self.rows.append({"load": round(os.getloadavg()[0], 2), **row})
        with open(self.file, "r+") as file:
            file.seek(self.file.stat().st_size - len(FILE_END))
            file.write("," * (len(self.rows) > 1) + f"\n  {json.dumps(self.rows[-1])}{FILE_END}")
        print(f"  {format_row(row) if message is None else message}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def catch_errors(self, name, peer=False):
        """Ends the block at an exception and goes on after it. Records that a peer was skipped, or that longhaul failed."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, (ProgramError, subprocess.TimeoutExpired)) else repr(error)
            (self.skip if peer else self.fail)(name, text)

    def skip(self, name, reason):
        """Records a peer or program that was not measured."""
        self.record("skipped", self.skipped, name, reason)

    def fail(self, name, reason):
        """Records a failure, which becomes the exit code."""
        self.record("failed", self.failed, name, reason)

    def record(self, outcome, reasons, name, reason):
        reasons[name] = " ".join(reason.split())
        self.write()
        print(f"bench/{NAME}: {outcome}: {name}: {reasons[name]}", file=sys.stderr, flush=True)

    def available(self, peers):
        """Returns the names of the peers, from {name: program}, that are on this machine. Skips the others."""
        for name, program in peers.items():
            if not shutil.which(str(program)):
                self.skip(name, f"{program} is not on this machine")
        return [name for name in peers if name not in self.skipped]

    def finish(self, lines):
        """Prints the table, writes it to DIR/table.md, and returns the exit code."""
        outcomes = (("skipped", self.skipped), ("failed", self.failed))
        notes = [f"- {outcome}: {name}: {reason}" for outcome, reasons in outcomes for name, reason in reasons.items()]
        lines = [*lines, *[""] * bool(notes), *notes]
        self.file.with_name("table.md").write_text("\n".join(lines) + "\n")
        print(*lines, sep="\n")
        return 1 if self.failed or not self.rows else 0


def format_row(row):
    """The short values of a row as text, for the terminal."""
    texts = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    return ", ".join(text for text in texts if len(text) < 60)


def group_by(rows, *keys):
    """Groups rows by the values of these keys. Returns (values, rows) pairs in order of first appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.items()


def median_range(rows, key, form=".0f"):
    """Formats a figure as `median (min–max)`. Rows without it do not count."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return "–"
    return f"{statistics.median(values):{form}}" + f" ({min(values):{form}}–{max(values):{form}})" * (len(values) > 1)


def table(heads, lines):
    """Yields the lines of a Markdown table. The first column is text, the others are numbers."""
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for line in lines:
        yield f"| {' | '.join(map(str, line))} |"
