# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the benchmarks in Python share: network namespaces as hosts, links between them, programs that run there, command-line
options, the results file, and tables. What `longhaul lab` can run is a scenario instead (bench/*.toml)."""
import argparse, contextlib, datetime, json, os, pathlib, platform, re, shlex, shutil, signal, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
NAME = pathlib.Path(sys.argv[0]).resolve().parent.name
# The share of a packet of 1500 bytes that is TCP payload, with timestamps.
PAYLOAD = 1448 / 1500
INSIDE = "LONGHAUL_BENCH_INSIDE"
EXIT_SKIPPED = 3
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class ProgramError(Exception):
    """A program did not start or failed. The message has the end of its output."""


def run_in_namespaces():
    """Runs the script again in mount and PID namespaces of its own, and exits with its code. Returns in the new namespaces.

    Names of network namespaces are private there, and the kernel ends all processes with the inner script."""
    if os.environ.pop(INSIDE, None):
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        run_command("mount", "-t", "tmpfs", "tmpfs", "/run")
        return
    if os.geteuid() != 0:
        skip_benchmark("root is needed for network namespaces")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    flags = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *flags, sys.executable, *sys.argv],
                             env=os.environ | {INSIDE: "yes"}, start_new_session=True)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        # Let the script restore the kernel settings that it changed.
        os.killpg(child.pid, signal.SIGINT)
        code = 130
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=30)
    finally:
        child.kill()
        child.wait()
    sys.exit(code)


def skip_benchmark(reason):
    """Exits because the benchmark cannot run on this machine."""
    print(f"bench/{pathlib.Path(sys.argv[0]).resolve().parent.name}: skipped: {reason}", file=sys.stderr)
    sys.exit(EXIT_SKIPPED)


def run_command(*command, timeout=600, **options):
    """Runs a program and returns its standard output. Raises ProgramError if it fails."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **options)
    if done.returncode:
        raise ProgramError(f"{' '.join(map(str, command[:8]))}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def netns_exec(host, *command):
    """Returns the arguments that run a command on a host. Host None is this machine."""
    return [*(["ip", "netns", "exec", host] if host else []), *map(str, command)]


@contextlib.contextmanager
def hosts(*names, sysctls=()):
    """Creates a network namespace for each name, and deletes them after the block."""
    try:
        for name in names:
            run_command("ip", "netns", "add", name)
            run_command("ip", "-n", name, "link", "set", "lo", "up")
            if sysctls:
                run_command(*netns_exec(name, "sysctl", "-qw", *sysctls))
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def add_veth(left, right, device="wan0", offload=True):
    """Joins two (host, ADDRESS/BITS) by a veth pair. Without `offload` each packet is one segment (no GSO, TSO, GRO)."""
    run_command("ip", "link", "add", device, "netns", left[0], "type", "veth", "peer", "name", device, "netns", right[0])
    for host, address in (left, right):
        run_command("ip", "-n", host, "address", "add", address, "dev", device)
        run_command("ip", "-n", host, "link", "set", device, "up")
        if not offload:
            run_command(*netns_exec(host, "ethtool", "-K", device, "gro", "off", "tso", "off", "gso", "off"))


def enable_quickack(host, network, device="wan0"):
    """Makes a host acknowledge each packet from this network at once."""
    run_command("ip", "-n", host, "route", "replace", network, "dev", device, "quickack", "1")


def emulated_link(longhaul, left, right, *flags):
    """Returns the Program `longhaul link` that joins two (host, ADDRESS/BITS) by interfaces wan0."""
    ends = (f"{host}:wan0:{address}" for host, address in (left, right))
    return Program(None, longhaul, "link", *(word for pair in zip(("--left", "--right"), ends) for word in pair), *flags, ready=r"\bready$")


@contextlib.contextmanager
def load_control(longhaul, control, *parameters):
    """Loads a congestion control of longhaul's for the block. One that the kernel has already stays as it is."""
    if not control.startswith("lh_") or not parameters and control in AVAILABLE.read_text().split():
        yield
        return
    run_command(longhaul, "cc", "load", control, *(word for parameter in parameters for word in ("--param", parameter)))
    try:
        yield
    finally:
        run_command(longhaul, "cc", "unload", control)


def iperf3(host, *flags, prefix=()):
    """Runs an iperf3 client on a host, by a command `prefix`, and returns the `end` object of its JSON."""
    return json.loads(run_command(*prefix, *netns_exec(host, "iperf3", "-J", *flags)))["end"]


class Program:
    """A program that runs on a host for the block. The block begins when the program is ready.

    `ready` is a TCP port on which it then listens, or a pattern that its output then matches."""

    def __init__(self, host, *command, ready=None, stop=signal.SIGTERM, **options):
        self.host, self.name, self.ready, self.stop, self.options = host, pathlib.Path(str(command[0])).name, ready, stop, options
        self.command = netns_exec(host, *command)

    def __enter__(self):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # In a session of its own, so that its children end with it.
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        start_new_session=True, **self.options)
        self.pid, started = self.process.pid, time.monotonic()
        try:
            while not self.is_ready():
                if self.wait(0.02) or time.monotonic() > started + 10:
                    raise ProgramError(f"{self.name} ended, or was not ready in 10 s: {self.log()[-400:]}")
        except BaseException:
            self.terminate()
            raise
        return self

    def is_ready(self):
        if isinstance(self.ready, int):
            return run_command(*netns_exec(self.host, "ss", "-Hltn", f"sport = :{self.ready}")).strip()
        return self.ready is None or re.search(self.ready, self.log(), re.M)

    def log(self):
        """Returns all output so far, standard output first."""
        return (self.read(self.out) + self.read(self.err)).strip()

    @staticmethod
    def read(file):
        """Returns what the program has written to `out` or `err` so far."""
        return os.pread(file.fileno(), 1 << 30, 0).decode(errors="replace")

    def wait(self, timeout_s=None):
        """Waits for the end of the program, and returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.process.returncode is not None

    def output(self):
        """Waits for the end of the program and returns its standard output. Raises ProgramError if it failed."""
        if code := self.process.wait():
            raise ProgramError(f"{self.name} ended with {code}: {(self.read(self.err) or self.read(self.out)).strip()[-400:]}")
        return self.read(self.out)

    def terminate(self, timeout_s=30):
        """Ends the program by its own signal, and by SIGKILL if that takes too long."""
        for sign in (self.stop, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sign)
            self.wait(timeout_s)

    def __exit__(self, *_):
        self.terminate()
        self.out.close()
        self.err.close()


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
        done = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=10)
        return next(iter((done.stdout + done.stderr).strip().splitlines()), "")


class Results:
    """Rows of measurements, kept in DIR/results.json, which is complete after each row."""

    def __init__(self, args, programs=()):
        self.file, self.rows, self.skipped, self.failed = args.out / "results.json", [], {}, {}
        self.head = {"command": shlex.join([f"bench/{NAME}/run.py", *sys.argv[1:]]),
                     "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "machine": machine_info([args.longhaul, *programs])}
        args.out.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self):
        head = json.dumps(self.head | {"skipped": self.skipped, "failed": self.failed}, indent=1)[:-2]
        rows = ",".join(f"\n  {json.dumps(row)}" for row in self.rows)
        self.file.write_text(f'{head},\n "rows": [{rows}\n ]\n}}\n')

    def add(self, row):
        """Appends the row of one run to the file, and prints it."""
        self.rows.append({"load": round(os.getloadavg()[0], 2), **row})
        self.write()
        print(f"  {format_row(row)}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def catch_errors(self, name, peer=False):
        """Ends the block at an exception and goes on after it. Records that a peer was skipped, or that longhaul failed."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, (ProgramError, subprocess.TimeoutExpired)) else repr(error)
            self.record("skipped" if peer else "failed", name, text)

    def record(self, outcome, name, reason):
        """Records what was `skipped`, or has `failed`, which becomes the exit code."""
        getattr(self, outcome)[name] = " ".join(reason.split())
        self.write()
        print(f"bench/{NAME}: {outcome}: {name}: {reason}", file=sys.stderr, flush=True)

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
