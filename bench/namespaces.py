# SPDX-License-Identifier: MIT OR Apache-2.0
"""Network namespaces, which are a benchmark's hosts, what joins them, and programs that run there."""
import contextlib, json, os, pathlib, re, select, signal, subprocess, sys, tempfile, time

INSIDE = "LONGHAUL_BENCH_INSIDE"
LEFT_OUT = 3
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class Failed(Exception):
    """A program did not start or did not do what it was asked for; with what it said."""


def apart(around=lambda: contextlib.nullcontext("here"), rootless=False):
    """Runs the script once more, in namespaces of its own: names of hosts are nobody else's there, and what it starts ends
    with it. Returns there, with what the context that `around` makes gives, which is entered before and left after it."""
    if told := os.environ.pop(INSIDE, None):
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        must("mount", "-t", "tmpfs", "tmpfs", "/run")
        return told
    user = os.geteuid() != 0
    if user and not rootless:
        leave("root is needed for network namespaces")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *["--user", "--map-root-user", "--net"] * user]
    with around() as told:
        child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *own, sys.executable, *sys.argv],
                                 env=os.environ | {INSIDE: str(told)}, start_new_session=True)
        try:
            code = child.wait()
        except KeyboardInterrupt:
            # So that it puts back what it has changed in the kernel.
            os.killpg(child.pid, signal.SIGINT)
            code = 130
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=30)
        finally:
            child.kill()
            child.wait()
    sys.exit(code)


def leave(why):
    """Ends a benchmark that this machine can't run."""
    print(f"bench/{pathlib.Path(sys.argv[0]).resolve().parent.name}: left out: {why}", file=sys.stderr)
    sys.exit(LEFT_OUT)


def must(*command, timeout=600, **how):
    """Runs a program to its end; what it wrote."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **how)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:8]))}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def inside(host, *command):
    """The words of a command on a host; None is this machine."""
    return [*(["ip", "netns", "exec", host] if host else []), *map(str, command)]


@contextlib.contextmanager
def hosts(*names, sysctls=()):
    """Within the block."""
    try:
        for name in names:
            must("ip", "netns", "add", name)
            must("ip", "-n", name, "link", "set", "lo", "up")
            if sysctls:
                must(*inside(name, "sysctl", "-qw", *sysctls))
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def wire(left, right, device="wan0", segments=False):
    """A pair of veth between two (host, ADDRESS/BITS). `segments`: nothing on it is a super-packet."""
    must("ip", "link", "add", device, "netns", left[0], "type", "veth", "peer", "name", device, "netns", right[0])
    for host, address in (left, right):
        must("ip", "-n", host, "address", "add", address, "dev", device)
        must("ip", "-n", host, "link", "set", device, "up")
        if segments:
            must(*inside(host, "ethtool", "-K", device, "gro", "off", "tso", "off", "gso", "off"))


def ack_each(host, network, device="wan0"):
    """It acknowledges each packet of this network at once."""
    must("ip", "-n", host, "route", "replace", network, "dev", device, "quickack", "1")


def link(longhaul, left, right, *flags):
    """`longhaul link` between two (host, ADDRESS/BITS), which become wan0 there; a Program."""
    ends = (f"{host}:wan0:{address}" for host, address in (left, right))
    return Program(None, longhaul, "link", *(word for pair in zip(("--left", "--right"), ends) for word in pair), *flags, ready=r"\bready$")


@contextlib.contextmanager
def loaded(longhaul, control, *parameters):
    """A congestion control is in the kernel within the block; one that is there anyway stays as it is."""
    if not control.startswith("lh_") or not parameters and control in AVAILABLE.read_text().split():
        yield
        return
    must(longhaul, "cc", "load", control, *(word for one in parameters for word in ("--param", one)))
    try:
        yield
    finally:
        must(longhaul, "cc", "unload", control)


def iperf3(host, *flags, before=(), through=(), timeout=600):
    """What a client on a host says at the end. `through` are the words of a program that starts it there, `before` of one
    that starts it from here."""
    return json.loads(must(*before, *inside(host, *through, "iperf3", "-J", *flags), timeout=timeout))["end"]


class Program:
    """A program on a host within the block, from when it is ready: it listens on that TCP port, or has said what this pattern is.

    Afterwards `cpu_s` and `peak_mb` say what it took, children that it waited for included."""

    def __init__(self, host, *command, ready=None, stop=signal.SIGTERM, **how):
        self.host, self.name, self.ready, self.stop, self.how = host, pathlib.Path(str(command[0])).name, ready, stop, how
        self.command, self.code, self.cpu_s, self.peak_mb = inside(host, *command), None, None, None

    def __enter__(self):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # A session of its own: what it starts is ended with it.
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        start_new_session=True, **self.how)
        self.pid, began = self.process.pid, time.monotonic()
        try:
            while not self.is_ready():
                if self.ended(0.02) or time.monotonic() > began + 10:
                    why = "ended" if self.code is not None else "is not ready after 10 s"
                    raise Failed(f"{self.name} did not start, it {why}: {self.said()[-400:]}")
        except BaseException:
            self.end()
            raise
        return self

    def is_ready(self):
        if isinstance(self.ready, int):
            return must(*inside(self.host, "ss", "-Hltn", f"sport = :{self.ready}")).strip()
        return self.ready is None or re.search(self.ready, self.said(), re.M)

    def said(self):
        return (self.text(self.out) + self.text(self.err)).strip()

    @staticmethod
    def text(file):
        return os.pread(file.fileno(), 1 << 30, 0).decode(errors="replace")

    def ended(self, wait_s=None):
        """Whether it has ended by then, known at once when it has."""
        if self.code is not None:
            return True
        descriptor, waiting = os.pidfd_open(self.pid), select.poll()
        try:
            waiting.register(descriptor, select.POLLIN)
            if not waiting.poll(None if wait_s is None else wait_s * 1000):
                return False
        finally:
            os.close(descriptor)
        _, status, used = os.wait4(self.pid, 0)
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s, self.peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        return True

    def output(self, timeout=None):
        """Standard output of a program that ends by itself or has been ended, if all went well."""
        if not self.ended(timeout):
            raise Failed(f"{self.name} took more than {timeout:g} s")
        if self.code:
            raise Failed(f"{self.name} ended with {self.code}: {(self.text(self.err) or self.text(self.out)).strip()[-400:]}")
        return self.text(self.out)

    def end(self, patience_s=30):
        """With the signal that it understands, or by force."""
        for sign in (self.stop, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sign)
            self.ended(patience_s)

    def __exit__(self, *_):
        self.end()
        self.out.close()
        self.err.close()
