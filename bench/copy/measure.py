# SPDX-License-Identifier: MIT OR Apache-2.0
"""One run of one tool: started, watched, ended in any case, what arrived compared, a record of it."""
import json, shutil, signal, time

import jobs
from testbed import PAYLOAD, RATE_BPS
from tools import Call

# No handshake of eight or sixteen connections is as large, and no payload counts as begun before.
BEGUN_BYTES = 100_000
# The largest files may take so much longer than the link does, whatever the limit is.
PATIENT = 3
# Whoever has less than this share at half of the time won't be done by its end, nor by twice that.
HALFWAY = 0.2
# Time for the far end of a tool that is done to end as well.
PATIENCE_S = 3


class Watch:
    """What came to the target over the time of a run, and how the connections stood at half."""

    def __init__(self, bed, expected_bytes, halfway):
        self.bed, self.expected, self.base = bed, expected_bytes, bed.received()
        self.halfway = halfway * expected_bytes
        self.series, self.connections = [], []

    def look(self, now_s):
        """Notes; the time until the next look."""
        came = self.bed.received() - self.base
        self.series.append((now_s, came))
        if not self.connections and came > self.expected / 2:
            self.connections = self.bed.sent_by_connection()
        return 0.002 if came < BEGUN_BYTES else 0.05

    def came(self):
        return self.series[-1][1]

    def is_hopeless(self):
        """At half of the time."""
        return self.came() < self.halfway

    def reached(self, amount):
        return next((at for at, came in self.series if came >= amount), None)

    def figures(self):
        begun, half, most = (self.reached(a) for a in (BEGUN_BYTES, self.expected / 2, self.expected * 0.95))
        got = {"received_bytes": self.came(), "begun_s": begun}
        if half and most and most > half:
            got["steady_utilisation"] = 0.45 * self.expected * 8 / (most - half) / (RATE_BPS * PAYLOAD)
        # Control connections carry little.
        loaded = [sent for sent in self.connections if sent > self.expected / 1000]
        got["all_received_bytes"] = self.bed.received() - self.base
        if len(loaded) > 1:
            got |= {"connections": len(loaded), "slowest_to_fastest": min(loaded) / max(loaded)}
        return got


class Silent:
    """Nothing to watch where nothing goes over a link."""

    def look(self, _):
        return 0.1

    def is_hopeless(self):
        return False

    def figures(self):
        return {}


def run(bed, tool, job, limit_s, stop_at=None, target=None):
    """A record. `stop_at`: both ends are killed when so much has come; `target`: it goes on there."""
    limit_s = max(limit_s, PATIENT * job.bytes * 8 / RATE_BPS)
    directory = bed.directory
    place = target or fresh(bed.root.parent / "target")
    jobs.sync(place)
    jobs.forget(job)
    call = Call(job, place, directory, bed.options)
    words = tool.command(call)
    # Of what is there in part already, nobody knows how much is still to come.
    halfway = HALFWAY if target is None else 0
    watch = Watch(bed, job.bytes, halfway) if hasattr(bed, "received") else Silent()
    before = cpu(bed)
    record = start_and_watch(bed, tool, words, watch, limit_s, stop_at)
    began = time.monotonic()
    jobs.sync(place)
    record["sync_s"] = time.monotonic() - began
    record |= watch.figures() | {f"cpu_{host}_s": after - before[host] for host, after in cpu(bed).items()}
    record |= {"bytes": job.bytes, "files": job.files}
    return judge(record, job, place, keep=stop_at is not None, again=target is not None)


def resume(bed, tool, job, limit_s):
    """Killed at half, both ends of it, and called again: the record of the second run, with what both came to."""
    first = run(bed, tool, job, limit_s, stop_at=job.bytes / 2)
    if first["end"] != "stopped":
        return first
    second = run(bed, tool, job, limit_s, target=bed.root.parent / "target")
    second["received_to_size"] = (first["all_received_bytes"] + second["all_received_bytes"]) / job.bytes
    second["seconds_in_all"] = first["seconds"] + second["seconds"] + second["sync_s"]
    return second


def fresh(place):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def cpu(bed):
    return {host: group.cpu_seconds() for host, group in bed.groups.items()}


def start_and_watch(bed, tool, words, watch, limit_s, stop_at):
    """How it ended: `done`, `failed`, `cut` (it took too long) or `stopped` (as asked)."""
    began = time.monotonic()
    with bed.program(tool.host, *words, stop=signal.SIGKILL) as process:
        end = attend(process, watch, began, limit_s, stop_at)
        record = {"seconds": time.monotonic() - began, "end": end}
        record["left_processes"] = sum(group.sweep(PATIENCE_S if end == "done" else 0) for group in bed.groups.values())
        text = process.log()
    if end == "failed":
        record["said"] = text[-600:]
    if end == "done" and tool.name.startswith("longhaul"):
        record["longhaul"] = last_object(text)
        record["own_slowest_to_fastest"] = own_balance(record["longhaul"] or {})
    return record


def own_balance(said):
    """Of the rates of its streams, as longhaul counts them; those that came late are none to compare."""
    streams = said.get("streams", [])
    longest = max((stream["duration_s"] for stream in streams), default=0)
    rates = [stream["acked_bytes"] / stream["duration_s"] for stream in streams if stream["duration_s"] > longest / 2]
    return min(rates) / max(rates) if len(rates) > 1 and max(rates) > 0 else None


def attend(process, watch, began, limit_s, stop_at):
    wait_s = 0.0
    while not process.wait(wait_s):
        now_s = time.monotonic() - began
        wait_s = watch.look(now_s)
        stopped = stop_at is not None and watch.came() >= stop_at
        if stopped or now_s > limit_s or now_s > limit_s / 2 and watch.is_hopeless():
            process.terminate()
            return "stopped" if stopped else "cut"
    watch.look(time.monotonic() - began)
    return "failed" if process.exit_code else "done"


def last_object(text):
    for line in reversed(text.splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            pass
    return None


def judge(record, job, place, keep, again):
    """What is done must be right; what was cut is told by what came, which is all that is comparable among tools.

    After an interruption there may be more than was asked for: the remains are noted."""
    if record["end"] == "done":
        wrong, remains = jobs.differences(job, place)
        record["remains"] = remains
        wrong += [f"not asked for: {path}" for path in remains if not again]
        if wrong:
            record |= {"end": "wrong", "said": "; ".join(wrong[:5]) + f" ({len(wrong)} in all)"}
    whole_s = record["seconds"] + record["sync_s"]
    record["carried_bytes"] = job.bytes if record["end"] == "done" else record.get("received_bytes", 0)
    if record["end"] in ("done", "cut"):
        record["goodput_bps"] = record["carried_bytes"] * 8 / whole_s
        record["utilisation"] = record["goodput_bps"] / (RATE_BPS * PAYLOAD)
        record["data_utilisation"] = record["utilisation"] * whole_s / (whole_s - (record.get("begun_s") or 0))
    if not keep:
        shutil.rmtree(place)
    return record
