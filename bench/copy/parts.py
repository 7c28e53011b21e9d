# SPDX-License-Identifier: MIT OR Apache-2.0
"""The questions of the bench: which tools copy what over which paths."""
import dataclasses, typing

import tools
from measure import PATIENT
from testbed import Path, RATE_BPS

RTTS_MS = (20, 100, 180, 350)
LOSSES = (0, 1e-5, 1e-4)
BUFFERS = ("default", "tuned")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a round. `resumed`: killed at half, then again."""
    part: str
    path: typing.Optional[Path]
    job: str
    tool: tools.Tool
    resumed: bool = False

    def key(self):
        """What tells its runs from others, for the record and for --only."""
        path = dataclasses.asdict(self.path) if self.path else {}
        return {"part": self.part, **path, "job": self.job, "tool": self.tool.name}


def matrix(_):
    """Each tool, each job, each path."""
    return [Cell("matrix", Path(rtt, loss, buffers), job, tool) for rtt in RTTS_MS for loss in LOSSES for buffers in BUFFERS
            for job in ("large", "small", "tree") for tool in tools.OURS + tools.PEERS]


def utilisation(_):
    """How much of the link 16 and 32 streams fill at 350 ms."""
    contenders = [tool(f"longhaul-{streams}", "--streams", str(streams)) for streams in (16, 32)]
    return [Cell("utilisation", Path(350, loss, buffers), "long", one)
            for loss in LOSSES for buffers in (*BUFFERS, "bursts") for one in contenders]


def local(_):
    """On this machine, from a directory to another of the same file system."""
    return [Cell("local", None, job, one) for job in ("large", "small", "tree") for one in tools.LOCAL]


def cpu(options):
    """What a GB costs, with and without encryption and hashes."""
    ours = [tool("longhaul")]
    for flags in (("--encrypt", "off"), ("--hash", "off"), ("--encrypt", "off", "--hash", "off")):
        if tools.knows(options, *flags[::2]):
            ours.append(tool("longhaul " + " ".join(flags), *flags))
    return [Cell("cpu", Path(20, 0, "tuned"), "large", one) for one in ours + tools.PEERS]


def first(_):
    """How long it takes until data flows."""
    return [Cell("first", Path(rtt, 0, "tuned"), "short", one) for rtt in RTTS_MS for one in tools.OURS + tools.PEERS]


def resume(_):
    """Killed at half, at both ends, then called again: what is sent twice, and how long it takes in all."""
    partial = tools.Tool("rsync --append-verify", "source", ("rsync",), tools.rsync("--partial", "--append-verify", "--inplace"))
    append = tools.Tool("bbcp -a", "source", ("bbcp",), tools.bbcp("-k", "-a"))
    contenders = [tool("longhaul"), tools.named("rsync"), partial, tools.named("aria2"), tools.named("rclone-http"), append]
    return [Cell("resume", Path(100, 0, "tuned"), "large", one, resumed=True) for one in contenders]


def tool(name, *flags):
    return tools.Tool(name, "source", ("longhaul",), tools.longhaul(*flags))


PARTS = {part.__name__: part for part in (matrix, utilisation, local, cpu, first, resume)}


def chosen(names, options, only):
    """The cells of a round. `only`: for each key its values, as text."""
    return [cell for name in names for cell in PARTS[name](options) if wanted(cell.key(), only)]


def wanted(key, only):
    """A cell without such a key is not judged by it: what is local has no path."""
    return all(any(same(key[name], value) for value in values) for name, values in only.items() if name in key)


def same(have, want):
    try:
        return float(have) == float(want)
    except (TypeError, ValueError):
        return str(have) == want


def cost_s(cell, bytes_, limit_s):
    """At the least, at the most: a run and what is around it."""
    times = 2 if cell.resumed else 1
    at_rate_s = bytes_ * 8 / RATE_BPS
    around_s = times * (1.5 + bytes_ / 1e9)
    return around_s + at_rate_s * bool(cell.path), around_s + times * (max(limit_s, PATIENT * at_rate_s) + 1)
