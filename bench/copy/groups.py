# SPDX-License-Identifier: MIT OR Apache-2.0
"""Control groups (v2), one for each host: they count the CPU time of its processes and can kill them all."""
import os, pathlib, signal, time

MOUNTS = (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup"))


def own_cgroup():
    """The directory of this process's control group; None without version 2."""
    for root in MOUNTS:
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            own = next(line for line in open("/proc/self/cgroup") if line.startswith("0::"))
            return root / own.strip()[4:]
    return None


class Group:
    """A control group. Removing it kills its processes."""

    def __init__(self, path):
        self.path, self.servers = path, set()
        path.mkdir(exist_ok=True)

    def join(self):
        """Moves this process into the group; for a child between fork and exec."""
        (self.path / "cgroup.procs").write_text("0")

    def pids(self):
        return set(map(int, (self.path / "cgroup.procs").read_text().split()))

    def mark_servers(self):
        """Marks the present processes as servers, which `kill_rest` does not kill."""
        self.servers = self.pids()

    def cpu_seconds(self):
        """User and system time of all processes that ever ran in the group."""
        fields = dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) * 1e-6

    def kill_rest(self, grace_s=0.0):
        """Kills all processes except servers that still run after `grace_s`. Returns their number."""
        deadline = time.monotonic() + grace_s
        while (rest := self.pids() - self.servers) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in rest:
            kill(pid)
        while self.pids() - self.servers:
            time.sleep(0.01)
        return len(rest)

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
