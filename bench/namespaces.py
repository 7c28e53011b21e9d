# SPDX-License-Identifier: MIT OR Apache-2.0
"""Network namespaces as the hosts of a benchmark, the links between them, and programs that run in them."""
import contextlib, json, os, pathlib, re, select, signal, subprocess, sys, tempfile, time

INSIDE = "LONGHAUL_BENCH_INSIDE"
EXIT_SKIPPED = 3
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class ProgramError(Exception):
    """A program did not start or failed. The message has the end of its output."""


def run_in_namespaces(setup=lambda: contextlib.nullcontext("here"), rootless=False):
    """Runs the script again in mount, PID and (without root) network namespaces of its own, and exits with its code.

    In the new namespaces it returns the value of the context manager `setup()`, as text. The outer process enters that
    context before the inner one starts, and leaves it afterwards. Names of network namespaces are private there, and the
    kernel ends all processes with the inner script."""
    if value := os.environ.pop(INSIDE, None):
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        run_command("mount", "-t", "tmpfs", "tmpfs", "/run")
        return value
    user = os.geteuid() != 0
    if user and not rootless:
        skip_benchmark("root is needed for network namespaces")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    flags = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *["--user", "--map-root-user", "--net"] * user]
    with setup() as value:
        child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *flags, sys.executable, *sys.argv],
                                 env=os.environ | {INSIDE: str(value)}, start_new_session=True)
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


def iperf3(host, *flags, outer_prefix=(), prefix=(), timeout=600):
    """Runs an iperf3 client on a host and returns the `end` object of its JSON.

    `prefix` is a command that starts it on the host (as `longhaul run --`), `outer_prefix` one that starts it from here."""
    return json.loads(run_command(*outer_prefix, *netns_exec(host, *prefix, "iperf3", "-J", *flags), timeout=timeout))["end"]


class Program:
    """A program that runs on a host for the block. The block begins when the program is ready.

    `ready` is a TCP port on which it then listens, or a pattern that its output then matches. After its end, `cpu_s` and
    `peak_mb` are what it used, children that it waited for included."""

    def __init__(self, host, *command, ready=None, stop=signal.SIGTERM, **options):
        self.host, self.name, self.ready, self.stop, self.options = host, pathlib.Path(str(command[0])).name, ready, stop, options
        self.command, self.exit_code, self.cpu_s, self.peak_mb = netns_exec(host, *command), None, None, None

    def __enter__(self):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # In a session of its own, so that its children end with it.
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        start_new_session=True, **self.options)
        self.pid, started = self.process.pid, time.monotonic()
        try:
            while not self.is_ready():
                if self.wait(0.02) or time.monotonic() > started + 10:
                    problem = "ended" if self.exit_code is not None else "is not ready after 10 s"
                    raise ProgramError(f"{self.name} did not start, it {problem}: {self.log()[-400:]}")
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
        if self.exit_code is not None:
            return True
        descriptor, poll = os.pidfd_open(self.pid), select.poll()
        try:
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                return False
        finally:
            os.close(descriptor)
        _, status, usage = os.wait4(self.pid, 0)
        self.exit_code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s, self.peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        return True

    def output(self, timeout=None):
        """Waits for the end of the program and returns its standard output. Raises ProgramError if it failed."""
        if not self.wait(timeout):
            raise ProgramError(f"{self.name} took more than {timeout:g} s")
        if self.exit_code:
            raise ProgramError(f"{self.name} ended with {self.exit_code}: {(self.read(self.err) or self.read(self.out)).strip()[-400:]}")
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
