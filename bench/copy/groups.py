# SPDX-License-Identifier: MIT OR Apache-2.0
"""Control groups (v2): what the processes of one host of the bench cost, and an end for all of them."""
import os, pathlib, signal, time

PLACES = (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup"))


def place():
    """The directory of this process's own group; None without version 2."""
    for root in PLACES:
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            own = next(line for line in open("/proc/self/cgroup") if line.startswith("0::"))
            return root / own.strip()[4:]
    return None


class Group:
    """One group, made here; whoever is in it ends with it."""

    def __init__(self, path):
        self.path, self.stay = path, set()
        path.mkdir(exist_ok=True)

    def join(self):
        """For a child between fork and exec."""
        (self.path / "cgroup.procs").write_text("0")

    def pids(self):
        return set(map(int, (self.path / "cgroup.procs").read_text().split()))

    def keep(self):
        """Whoever is here now is a server: `sweep` leaves it alone."""
        self.stay = self.pids()

    def cpu_seconds(self):
        """User and system time of all that ever ran here."""
        fields = dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) * 1e-6

    def sweep(self, patience_s=0.0):
        """Ends what is left besides the servers, after some patience. The number of processes that had to be ended."""
        until = time.monotonic() + patience_s
        while (left := self.pids() - self.stay) and time.monotonic() < until:
            time.sleep(0.02)
        for pid in left:
            kill(pid)
        while self.pids() - self.stay:
            time.sleep(0.01)
        return len(left)

    def remove(self):
        (self.path / "cgroup.kill").write_text("1")
        for _ in range(500):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.01)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
