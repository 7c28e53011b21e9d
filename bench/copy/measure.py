# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs one tool once: starts it, samples its progress, ends it, compares the copy, and returns a record."""
import json, shutil, signal, time

import jobs
from testbed import PAYLOAD, RATE_BPS
from tools import Call

# Payload counts as flowing from here. The handshakes of 16 connections are smaller.
STARTED_BYTES = 100_000
# A run may always take so many times the link's time for its data, whatever the limit is.
MIN_LIMIT_FACTOR = 3
# A tool with less than this share of the data at half of the time limit is ended: twice the limit would not suffice.
HALFWAY_SHARE = 0.2
# Time for the remote process of a tool to end after the tool.
EXIT_GRACE_S = 3


class ProgressMonitor:
    """Samples the bytes received at the target during a run, and the bytes of each connection at half of the data."""

    def __init__(self, bed, expected_bytes, halfway_share):
        self.bed, self.expected, self.base = bed, expected_bytes, bed.received()
        self.halfway_bytes = halfway_share * expected_bytes
        self.series, self.connections = [], []

    def sample(self, now_s):
        """Takes a sample. Returns the time until the next one."""
        received = self.bed.received() - self.base
        self.series.append((now_s, received))
        if not self.connections and received > self.expected / 2:
            self.connections = self.bed.sent_by_connection()
        return 0.002 if received < STARTED_BYTES else 0.05

    def received(self):
        return self.series[-1][1]

    def is_too_slow(self):
        """Whether too little has arrived at half of the time limit."""
        return self.received() < self.halfway_bytes

    def time_of(self, amount):
        """The time at which so many bytes had arrived; None if they never did."""
        return next((at for at, received in self.series if received >= amount), None)

    def metrics(self):
        started, half, most = (self.time_of(amount) for amount in (STARTED_BYTES, self.expected / 2, self.expected * 0.95))
        metrics = {"received_bytes": self.received(), "first_data_s": started}
        if half and most and most > half:
            metrics["steady_utilisation"] = 0.45 * self.expected * 8 / (most - half) / (RATE_BPS * PAYLOAD)
        # Control connections, which carry little, do not count.
        loaded = [sent for sent in self.connections if sent > self.expected / 1000]
        metrics["total_received_bytes"] = self.bed.received() - self.base
        if len(loaded) > 1:
            metrics |= {"connections": len(loaded), "slowest_to_fastest": min(loaded) / max(loaded)}
        return metrics


class NoMonitor:
    """The monitor of a local copy, which uses no link."""

    def sample(self, _):
        return 0.1

    def is_too_slow(self):
        return False

    def metrics(self):
        return {}


def run(bed, tool, job, limit_s, stop_at=None, target=None):
    """Runs a tool and returns a record. `stop_at`: kill both ends after so many bytes; `target`: resume in this directory."""
    limit_s = max(limit_s, MIN_LIMIT_FACTOR * job.bytes * 8 / RATE_BPS)
    directory = bed.directory
    destination = target or empty_directory(bed.root.parent / "target")
    jobs.sync(destination)
    jobs.drop_from_page_cache(job)
    call = Call(job, destination, directory, bed.options)
    command = tool.command(call)
    # How much a resumed run has to transfer is not known.
    halfway_share = HALFWAY_SHARE if target is None else 0
    monitor = ProgressMonitor(bed, job.bytes, halfway_share) if hasattr(bed, "received") else NoMonitor()
    before = cpu_seconds(bed)
    record = run_tool(bed, tool, command, monitor, limit_s, stop_at)
    started = time.monotonic()
    jobs.sync(destination)
    record["sync_s"] = time.monotonic() - started
    record |= monitor.metrics() | {f"cpu_{host}_s": after - before[host] for host, after in cpu_seconds(bed).items()}
    record |= {"bytes": job.bytes, "files": job.files}
    return evaluate(record, job, destination, keep=stop_at is not None, resumed=target is not None)


def resume(bed, tool, job, limit_s):
    """Runs a tool, kills both ends at half, and runs it again. Returns the record of the second run, with totals of both."""
    first = run(bed, tool, job, limit_s, stop_at=job.bytes / 2)
    if first["outcome"] != "stopped":
        return first
    second = run(bed, tool, job, limit_s, target=bed.root.parent / "target")
    second["received_to_size"] = (first["total_received_bytes"] + second["total_received_bytes"]) / job.bytes
    second["total_seconds"] = first["seconds"] + second["seconds"] + second["sync_s"]
    return second


def empty_directory(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def cpu_seconds(bed):
    return {host: group.cpu_seconds() for host, group in bed.groups.items()}


def run_tool(bed, tool, command, monitor, limit_s, stop_at):
    """Runs the command. Its outcome is `done`, `failed`, `timeout`, or `stopped` at `stop_at`."""
    started = time.monotonic()
    with bed.program(tool.host, *command, stop=signal.SIGKILL) as process:
        outcome = wait_for_end(process, monitor, started, limit_s, stop_at)
        record = {"seconds": time.monotonic() - started, "outcome": outcome}
        record["killed_processes"] = sum(group.kill_rest(EXIT_GRACE_S if outcome == "done" else 0) for group in bed.groups.values())
        text = process.log()
    if outcome == "failed":
        record["message"] = text[-600:]
    if outcome == "done" and tool.name.startswith("longhaul"):
        record["longhaul"] = last_json(text)
        record["acked_slowest_to_fastest"] = stream_balance(record["longhaul"] or {})
    return record


def stream_balance(report):
    """Slowest over fastest stream by longhaul's own report. Streams that lasted less than half of the longest do not count."""
    streams = report.get("streams", [])
    longest = max((stream["duration_s"] for stream in streams), default=0)
    rates = [stream["acked_bytes"] / stream["duration_s"] for stream in streams if stream["duration_s"] > longest / 2]
    return min(rates) / max(rates) if len(rates) > 1 and max(rates) > 0 else None


def wait_for_end(process, monitor, started, limit_s, stop_at):
    """Samples the progress until the process ends, or ends it. Returns the outcome."""
    wait_s = 0.0
    while not process.wait(wait_s):
        now_s = time.monotonic() - started
        wait_s = monitor.sample(now_s)
        stopped = stop_at is not None and monitor.received() >= stop_at
        if stopped or now_s > limit_s or now_s > limit_s / 2 and monitor.is_too_slow():
            process.terminate()
            return "stopped" if stopped else "timeout"
    monitor.sample(time.monotonic() - started)
    return "failed" if process.exit_code else "done"


def last_json(text):
    """The last line that is JSON; None if no line is."""
    for line in reversed(text.splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            pass
    return None


def evaluate(record, job, destination, keep, resumed):
    """Compares the copy with the source, and adds the goodput: of the bytes received so far if the run timed out.

    Extra files are an error, except after a resumed run."""
    if record["outcome"] == "done":
        wrong, extra = jobs.differences(job, destination)
        record["extra_files"] = extra
        wrong += [f"extra file: {path}" for path in extra if not resumed]
        if wrong:
            record |= {"outcome": "corrupt", "message": "; ".join(wrong[:5]) + f" ({len(wrong)} in all)"}
    total_s = record["seconds"] + record["sync_s"]
    record["transferred_bytes"] = job.bytes if record["outcome"] == "done" else record.get("received_bytes", 0)
    if record["outcome"] in ("done", "timeout"):
        record["goodput_bps"] = record["transferred_bytes"] * 8 / total_s
        record["utilisation"] = record["goodput_bps"] / (RATE_BPS * PAYLOAD)
        record["data_utilisation"] = record["utilisation"] * total_s / (total_s - (record.get("first_data_s") or 0))
    if not keep:
        shutil.rmtree(destination)
    return record
