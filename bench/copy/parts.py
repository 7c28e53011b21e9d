# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of the benchmark: which tools copy which files over which paths."""
import dataclasses, typing

import tools
from measure import MIN_LIMIT_FACTOR
from testbed import Path, RATE_BPS

RTTS_MS = (20, 100, 180, 350)
LOSSES = (0, 1e-5, 1e-4)
BUFFERS = ("default", "tuned")


@dataclasses.dataclass(frozen=True)
class Case:
    """A run in each round. `resumed`: it is killed at half and run again."""
    part: str
    path: typing.Optional[Path]
    job: str
    tool: tools.Tool
    resumed: bool = False

    def key(self):
        """The fields that identify a case, for the record and for --only."""
        path = dataclasses.asdict(self.path) if self.path else {}
        return {"part": self.part, **path, "job": self.job, "tool": self.tool.name}


def matrix(_):
    """Every tool, job and path."""
    return [Case("matrix", Path(rtt, loss, buffers), job, tool) for rtt in RTTS_MS for loss in LOSSES for buffers in BUFFERS
            for job in ("large", "small", "tree") for tool in tools.LONGHAUL + tools.PEERS]


def utilisation(_):
    """Utilisation of the link by 16 and 32 streams at 350 ms."""
    tools_ = [longhaul_tool(f"longhaul-{streams}", "--streams", str(streams)) for streams in (16, 32)]
    return [Case("utilisation", Path(350, loss, buffers), "long", tool)
            for loss in LOSSES for buffers in (*BUFFERS, "bursts") for tool in tools_]


def local(_):
    """Copies on this machine, between two directories of one file system."""
    return [Case("local", None, job, tool) for job in ("large", "small", "tree") for tool in tools.LOCAL]


def cpu(options):
    """CPU time for a GB, with and without encryption and hashes."""
    variants = [longhaul_tool("longhaul")]
    for flags in (("--encrypt", "off"), ("--hash", "off"), ("--encrypt", "off", "--hash", "off")):
        if tools.has_flags(options, *flags[::2]):
            variants.append(longhaul_tool("longhaul " + " ".join(flags), *flags))
    return [Case("cpu", Path(20, 0, "tuned"), "large", tool) for tool in variants + tools.PEERS]


def first(_):
    """Time until data flows."""
    return [Case("first", Path(rtt, 0, "tuned"), "short", tool) for rtt in RTTS_MS for tool in tools.LONGHAUL + tools.PEERS]


def resume(_):
    """Copies that are killed at half and run again: data that is sent twice, and total time."""
    partial = tools.Tool("rsync --append-verify", "source", ("rsync",), tools.rsync("--partial", "--append-verify", "--inplace"))
    append = tools.Tool("bbcp -a", "source", ("bbcp",), tools.bbcp("-k", "-a"))
    tools_ = [longhaul_tool("longhaul"), tools.by_name("rsync"), partial, tools.by_name("aria2"), tools.by_name("rclone-http"), append]
    return [Case("resume", Path(100, 0, "tuned"), "large", tool, resumed=True) for tool in tools_]


def longhaul_tool(name, *flags):
    return tools.Tool(name, "source", ("longhaul",), tools.longhaul(*flags))


PARTS = {part.__name__: part for part in (matrix, utilisation, local, cpu, first, resume)}


def select(names, options, only):
    """The cases of a round. `only` has the values for each key, as text."""
    return [case for name in names for case in PARTS[name](options) if matches(case.key(), only)]


def matches(key, only):
    """Whether a case has the values of `only`. Keys that it lacks do not count: a local copy has no path."""
    return all(any(is_equal(key[name], value) for value in values) for name, values in only.items() if name in key)


def is_equal(value, text):
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value) == text


def duration_bounds_s(case, bytes_, limit_s):
    """The least and the most time for a run, its preparation included."""
    times = 2 if case.resumed else 1
    at_rate_s = bytes_ * 8 / RATE_BPS
    preparation_s = times * (1.5 + bytes_ / 1e9)
    return preparation_s + at_rate_s * bool(case.path), preparation_s + times * (max(limit_s, MIN_LIMIT_FACTOR * at_rate_s) + 1)
