#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies files once by a tool, from disk to disk, and prints its figures. It runs in scenarios of the lab (bench/copy*.toml).

    copy_once.py TOOL --longhaul PATH --work DIR --job large|small|tree|long [--scale 1] [--limit 60] [--resume]

A copy begins with its source outside the page cache, and ends when the target's file system is synced. Then it is compared
with the source. It is stopped if it takes longer than --limit, or has less than a fifth of the data at half of that; its rate
is then that of the bytes that had arrived. --resume kills it at half, and runs it again.
"""
import argparse, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, time

import tools
from files import Job, sync
from servers import ADDRESS

RATE_BPS = 1_000_000_000
# What the link carries of payload.
PAYLOAD_BPS = RATE_BPS * 1448 / 1500
# Payload counts as flowing from here. The handshakes of 16 connections are smaller.
STARTED_BYTES = 100_000
# A copy may always take so many times the link's time for its data, whatever the limit is.
MIN_LIMIT_FACTOR = 3
# A tool with less than this share of the data at half of the time limit is stopped: twice the limit would not suffice.
HALFWAY_SHARE = 0.2
# Time for the remote process of a tool to end after the tool.
EXIT_GRACE_S = 3


class Failure(Exception):
    """The tool failed, or its copy differs from the source."""


class Monitor:
    """Samples what arrives at the target's interface, and the bytes of each connection at half of the data."""

    def __init__(self, expected_bytes):
        self.expected, self.series, self.connections = expected_bytes, [], []
        # Its /proc shows the target's interfaces.
        self.at_target = subprocess.Popen(["ip", "netns", "exec", "target", "sleep", "infinity"])
        self.base = self.counter()

    def counter(self):
        for line in open(f"/proc/{self.at_target.pid}/net/dev"):
            name, _, fields = line.partition(":")
            if name.strip() == "line":
                return int(fields.split()[0])
        time.sleep(0.01)
        return self.counter()

    def received(self):
        return self.counter() - self.base

    def sample(self, now_s):
        """Takes a sample. Returns the time until the next one."""
        received = self.received()
        self.series.append((now_s, received))
        if not self.connections and received > self.expected / 2:
            shown = subprocess.run(["ip", "netns", "exec", "source", "ss", "-HtinO", "state", "established"], capture_output=True, text=True)
            self.connections = [int(word[12:]) for word in shown.stdout.split() if word.startswith("bytes_acked:")]
        return 0.002 if received < STARTED_BYTES else 0.05

    def time_of(self, amount):
        """The time at which so many bytes had arrived; None if they never did."""
        return next((at for at, received in self.series if received >= amount), None)

    def figures(self):
        first, half, most = (self.time_of(amount) for amount in (STARTED_BYTES, self.expected / 2, self.expected * 0.95))
        steady = 0.45 * self.expected * 8 / (most - half) / PAYLOAD_BPS if half and most and most > half else None
        # Control connections, which carry little, do not count.
        loaded = [sent for sent in self.connections if sent > self.expected / 1000]
        even = min(loaded) / max(loaded) if len(loaded) > 1 else None
        return {"first_data_s": first, "steady_utilisation_ratio": steady, "slowest_to_fastest": even}


class Copy:
    """One run of a tool."""

    def __init__(self, command, job, limit_s, stop_bytes=None, is_resumed=False):
        self.job, self.stop_bytes = job, stop_bytes
        self.limit_s = max(limit_s, MIN_LIMIT_FACTOR * job.bytes * 8 / RATE_BPS)
        # How much a resumed run has to transfer is not known.
        self.halfway_bytes = 0 if is_resumed else HALFWAY_SHARE * job.bytes
        self.monitor = Monitor(job.bytes)
        job.drop_from_page_cache()
        self.run(command)

    def run(self, command):
        before, started, environment = os.times(), time.monotonic(), os.environ | {"GLOBUS_HOSTNAME": ADDRESS["source"]}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment)
            self.is_stopped = self.stop_in_time(process, started)
            code = process.wait()
            self.seconds, after = time.monotonic() - started, os.times()
            output.seek(0)
            self.output = output.read().decode(errors="replace").strip()
        self.cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        if code and not self.is_stopped:
            raise Failure(f"{command[0]} ended with {code}: {self.output[-400:]}")

    def stop_in_time(self, process, started):
        """Samples the progress until the process ends. Returns whether it had to be stopped."""
        wait_s = 0.0
        while True:
            try:
                process.wait(wait_s)
                return False
            except subprocess.TimeoutExpired:
                now_s = time.monotonic() - started
                wait_s = self.monitor.sample(now_s)
                if self.is_over(now_s):
                    os.killpg(process.pid, signal.SIGKILL)
                    return True

    def is_over(self, now_s):
        received = self.monitor.series[-1][1]
        is_slow = now_s > self.limit_s / 2 and received < self.halfway_bytes
        return now_s > self.limit_s or is_slow or self.stop_bytes is not None and received >= self.stop_bytes


def stream_balance(output):
    """Slowest over fastest stream by longhaul's own report. Streams that lasted less than half of the longest do not count."""
    try:
        streams = json.loads(output.splitlines()[-1])["streams"]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    longest = max((stream["duration_s"] for stream in streams), default=0)
    rates = [stream["acked_bytes"] / stream["duration_s"] for stream in streams if stream["duration_s"] > longest / 2]
    return min(rates) / max(rates) if len(rates) > 1 and max(rates) > 0 else None


def figures(copy, sync_s, is_local):
    """The figures of a copy, of what had arrived if it was stopped."""
    job, seconds, seen = copy.job, copy.seconds + sync_s, copy.monitor.figures()
    transferred = min(copy.monitor.received(), job.bytes) if copy.is_stopped else job.bytes
    rate = transferred * 8 / seconds
    from_first_data = None if is_local else rate * seconds / (seconds - (seen["first_data_s"] or 0)) / PAYLOAD_BPS
    return {"rate_bps": rate, "stopped": int(copy.is_stopped), "transferred_bytes": transferred, "total_s": seconds,
            "tool_cpu_per_gb_s": copy.cpu_s / max(transferred, 1) * 1e9, "utilisation_ratio": rate / PAYLOAD_BPS,
            "data_utilisation_ratio": from_first_data, "acked_slowest_to_fastest": stream_balance(copy.output), **seen}


def run(args):
    job, target = Job(args.job, args.scale, args.work / "source"), args.work / "target"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sync(target)
    command = tools.command(args.tool, tools.Call(args.longhaul, job, target, args.work / "servers"))
    earlier_s, received = 0.0, None
    if args.resume:
        first = Copy(command, job, args.limit, stop_bytes=job.bytes / 2)
        time.sleep(EXIT_GRACE_S)
        earlier_s, received = first.seconds, first.monitor.received()
    copy = Copy(command, job, args.limit, is_resumed=args.resume)
    started = time.monotonic()
    sync(target)
    found = figures(copy, time.monotonic() - started, args.tool.startswith("local"))
    if not copy.is_stopped and (problem := job.differences(target)):
        raise Failure(f"the copy differs: {problem[:400]}")
    shutil.rmtree(target)
    if args.resume:
        found |= {"received_to_size": (received + copy.monitor.received()) / job.bytes, "both_runs_s": earlier_s + found["total_s"]}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", help="a tool of tools.py, or `longhaul FLAGS`")
    parser.add_argument("--longhaul", required=True, metavar="PATH")
    parser.add_argument("--work", type=pathlib.Path, required=True, metavar="DIR", help="directory on the disk to copy from and to")
    parser.add_argument("--job", default="large", choices=["large", "small", "tree", "long"])
    parser.add_argument("--scale", type=float, default=1, help="share of the job's size (1)")
    parser.add_argument("--limit", type=float, default=60, help="time limit, s (60)")
    parser.add_argument("--resume", action="store_true", help="kill the tool at half of the data, and run it again")
    try:
        print(json.dumps(run(parser.parse_args())))
    except Failure as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
