# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a benchmark is told and what it keeps: options, the machine, rows, who was left out and why, tables."""
import argparse, contextlib, datetime, json, os, pathlib, platform, shlex, shutil, statistics, subprocess, sys

from namespaces import Failed, leave

ROOT = pathlib.Path(__file__).resolve().parents[1]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
NAME = pathlib.Path(sys.argv[0]).resolve().parent.name
# TCP's payload of a packet of 1500 bytes, with timestamps.
PAYLOAD = 1448 / 1500
SAYS_VERSION = {"ssh": "-V", "bbcp": "-#", "nginx": "-v", "haproxy": "-v", "danted": "-v", "squid": "-v", "mscp": "-h", "tcptrace": "-v",
                "gost": "-V", "globus-url-copy": "-version"}
# Of a file of results.
END = "\n ]\n}\n"


def options(doc, rounds=5):
    """A parser of what every benchmark can be told."""
    parser = argparse.ArgumentParser(prog=f"bench/{NAME}/run.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: does it work here?")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"({rounds})")
    parser.add_argument("--longhaul", type=pathlib.Path, default=os.environ.get("LONGHAUL", RELEASE / "longhaul"), metavar="PATH")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/bench" / NAME, metavar="DIR")
    return parser


def told(parser, needs=(), **quick):
    """What it was told. `quick`: other defaults under --quick; `needs`: programs without which there is nothing to measure."""
    args = parser.parse_args()
    if args.quick:
        parser.set_defaults(rounds=1, **quick)
        args = parser.parse_args()
    args.longhaul, args.out = args.longhaul.resolve(), args.out.resolve()
    if not os.access(args.longhaul, os.X_OK):
        leave(f"no program at {args.longhaul}: build it (scripts/cargo build --release) or give --longhaul PATH")
    if missing := [program for program in needs if not shutil.which(program)]:
        leave(f"not on this machine: {', '.join(missing)}")
    return args


def names(text):
    """The type of an option that takes NAME,NAME,..."""
    return text.split(",")


def machine(programs):
    """What the figures depend on besides the code."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(": ", 1)[1] for line in cpuinfo if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": models[0] if models else platform.machine(), "cores": os.cpu_count(), "memory_gb": round(memory / 1e9, 1),
            "kernel": platform.release(), "load": os.getloadavg()[0],
            "versions": {pathlib.Path(one).name: version(one) for one in map(str, programs) if shutil.which(one)}}


def version(program):
    """The first line of what it says of itself."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run([program, SAYS_VERSION.get(pathlib.Path(program).name, "--version")], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=10)
        return next(iter((said.stdout + said.stderr).strip().splitlines()), "")


class Results:
    """DIR/results.json, which always has all rows so far; `again`: also those that it had before."""

    def __init__(self, args, programs=(), again=False, **facts):
        self.file, self.left_out, self.failed = args.out / "results.json", {}, {}
        self.rows = json.loads(self.file.read_text())["rows"] if again and self.file.exists() else []
        self.head = {"command": shlex.join([f"bench/{NAME}/run.py", *sys.argv[1:]]),
                     "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "machine": machine([args.longhaul, *programs]) | facts}
        args.out.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self):
        head = json.dumps(self.head | {"left_out": self.left_out, "failed": self.failed}, indent=1)[:-2]
        rows = ",".join(f"\n  {json.dumps(row)}" for row in self.rows)
        self.file.write_text(f'{head},\n "rows": [{rows}{END}')

    def add(self, row, said=None):
        """One run; `said` tells it on the terminal."""
        self.rows.append({"load": round(os.getloadavg()[0], 2), **row})
        with open(self.file, "r+") as file:
            file.seek(self.file.stat().st_size - len(END))
            file.write("," * (len(self.rows) > 1) + f"\n  {json.dumps(self.rows[-1])}{END}")
        print(f"  {figures(row) if said is None else said}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def trying(self, who, peer=False):
        """What goes wrong in the block ends it alone: a peer is left out with its message, what is ours has failed."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, (Failed, subprocess.TimeoutExpired)) else repr(error)
            (self.leave_out if peer else self.fail)(who, text)

    def leave_out(self, who, why):
        self.note(self.left_out, "left out", who, why)

    def fail(self, who, why):
        self.note(self.failed, "failed", who, why)

    def note(self, place, what, who, why):
        place[who] = " ".join(why.split())
        self.write()
        print(f"bench/{NAME}: {what}: {who}: {place[who]}", file=sys.stderr, flush=True)

    def present(self, peers):
        """Those of {name: program} that are on this machine; the others are left out."""
        for who, program in peers.items():
            if not shutil.which(str(program)):
                self.leave_out(who, f"{program} is not on this machine")
        return [who for who in peers if who not in self.left_out]

    def close(self, lines):
        """Prints the table and keeps it as DIR/table.md; the exit code."""
        missed = [f"- {what}: {who}: {why}" for what, place in (("left out", self.left_out), ("failed", self.failed)) for who, why in place.items()]
        lines = [*lines, *[""] * bool(missed), *missed]
        self.file.with_name("table.md").write_text("\n".join(lines) + "\n")
        print(*lines, sep="\n")
        return 1 if self.failed or not self.rows else 0


def figures(row):
    shown = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    return ", ".join(text for text in shown if len(text) < 60)


def by(rows, *keys):
    """Rows that have the same values of these keys, by those values, in the order in which they came."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found.items()


def spread(rows, key, form=".0f"):
    """Median, least and most of a figure, which may be absent."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return "–"
    return f"{statistics.median(values):{form}}" + f" ({min(values):{form}}–{max(values):{form}})" * (len(values) > 1)


def table(heads, lines):
    """Markdown; the first column is text."""
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for line in lines:
        yield f"| {' | '.join(map(str, line))} |"
