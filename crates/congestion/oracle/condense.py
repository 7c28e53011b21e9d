#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Converts a recorded flow to a test vector.

    condense.py RUN VECTOR

reads RUN/cell, RUN/calls, RUN/release and RUN/data_packets and writes VECTOR.rounds.csv.gz and
VECTOR.calls.csv.gz, whose format tests/vectors/README.md explains.
"""

import gzip
import io
import mmap
import struct
import sys
from collections import namedtuple
from pathlib import Path

# struct call of kernel/call.h
CALL = struct.Struct("<QI4BIi16I64s")
# CAPACITY of kernel/recorder.c. A file of this length may lack calls.
CAPACITY = 1 << 22
FIELDS = (
    "time_ns jiffies kind state limited reserved arg rtt_us in_flight "
    "cwnd_before cnt_before ssthresh_before cwnd cnt ssthresh srtt_us packets_out sacked_out lost_out "
    "retrans_out delivered una nxt total_retrans private"
)
Call = namedtuple("Call", FIELDS)

# Layout of each control's private state (icsk_ca_priv). x skips fields that depend on a random sequence number.
PRIVATE = {
    "reno": ("", ""),
    "scalable": ("", ""),
    "highspeed": ("I", "ai"),
    "bic": ("6I", "ca_cnt last_max_cwnd last_cwnd last_time epoch_start delayed_ack"),
    "htcp": (
        "I2BH12I",
        "alpha beta modeswitch pkts_acked packetcount min_rtt max_rtt last_cong undo_last_cong "
        "undo_max_rtt undo_old_max_b min_b max_b old_max_b b_i lasttime",
    ),
    "cubic": (
        "10IHBBI4x2I",
        "ca_cnt last_max_cwnd last_cwnd last_time origin_point k delay_min epoch_start ack_cnt tcp_cwnd "
        "unused sample_cnt found round_start last_ack curr_rtt",
    ),
}

STATES = ("open", "disorder", "cwr", "recovery", "loss")
CALLS = {
    "i": "init",
    "k": "ack",
    "p": "pkts_acked",
    "a": "cong_avoid",
    "t": "ssthresh",
    "s": "set_state",
    "e": "cwnd_event",
    "u": "undo_cwnd",
    "r": "release",
}

# The limit of calls in a vector: about 40 KB of gzip.
CALLS_MAX = 10_000
# The number of calls in an excerpt, before and after its event.
BEFORE = 300
AFTER_START = 600
AFTER_LOSS = 300
AFTER_RECOVERY = 1_500


def read_cell(path):
    """Reads NAME=VALUE lines. Values may have single quotes."""
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {name: value.strip("'") for name, value in pairs}


class Calls:
    """The calls of a file, from init (the handshake's ACK comes before it) to the last ACK."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self.bytes) >= CAPACITY * CALL.size:
            sys.exit(f"{path}: the recorder was full")
        kinds = (call.kind for call in map(Call._make, CALL.iter_unpack(self.bytes)))
        self.skipped = next(index for index, kind in enumerate(kinds) if kind == ord("i"))
        self.length = len(self.bytes) // CALL.size - self.skipped
        while chr(self[self.length - 1].kind) in "sr":  # these belong to the close of the socket
            self.length -= 1

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return Call._make(CALL.unpack_from(self.bytes, (self.skipped + index) * CALL.size))


class Trace:
    def __init__(self, run):
        self.cell = read_cell(run / "cell")
        self.release = (run / "release").read_text().strip()
        self.data_packets = (run / "data_packets").read_text().strip()
        self.calls = Calls(run / "calls")
        self.start_ns = self.calls[0].time_ns
        layout, names = PRIVATE[self.cell["control"]]
        self.private_layout = struct.Struct("<" + layout)
        self.private_names = names.split()

    def time_us(self, call):
        return (call.time_ns - self.start_ns) // 1000

    def private(self, call):
        return self.private_layout.unpack_from(call.private)

    def header(self):
        lines = [f"# kernel: {self.release}", "# hz: 1000", "# mss: 1448"]
        lines += [f"# {name}: {value}" for name, value in self.cell.items()]
        lines.append(f"# packets: {self.data_packets}")
        lines.append(f"# first_jiffies: {self.calls[0].jiffies}")
        return "".join(line + "\n" for line in lines)


def rounds(trace):
    """Yields the calls at the end of each round trip, and those of losses and recoveries."""
    round_end = 0
    for call in trace.calls:
        kind = chr(call.kind)
        if kind in "itsu":
            yield CALLS[kind], call
        elif kind in "pa" and call.una > round_end:
            round_end = call.nxt
            yield "round", call


def write_rounds(trace, to):
    columns = "why time_us state arg cwnd ssthresh srtt_us packets_out delivered total_retrans".split()
    to.write(trace.header() + ",".join(columns + trace.private_names) + "\n")
    previous = []
    for event, call in rounds(trace):
        arg = STATES[call.arg] if event == "set_state" else call.arg if event in ("ssthresh", "undo_cwnd") else "-"
        row = [event, trace.time_us(call), STATES[call.state], arg, call.cwnd, call.ssthresh, call.srtt_us]
        row += [call.packets_out, call.delivered, call.total_retrans, *trace.private(call)]
        to.write(",".join(changes(row, previous)) + "\n")
        previous = row


def events(trace):
    """Yields the events for excerpts, as (index of a call, number of calls after it): the start, each start and end of a
    recovery, and each undo."""
    yield 0, AFTER_START
    in_recovery = False
    for index, call in enumerate(trace.calls):
        kind = chr(call.kind)
        changed = kind == "s" and (call.arg >= STATES.index("cwr")) != in_recovery
        if changed or kind == "u":
            in_recovery = changed and not in_recovery
            yield index, AFTER_LOSS if in_recovery else AFTER_RECOVERY


def excerpts(trace):
    """Returns disjoint ranges of calls, in order, up to CALLS_MAX calls; all calls if the cell has calls=all."""
    if trace.cell.get("calls") == "all":
        return [(0, len(trace.calls))]
    ranges = [(0, 0)]
    remaining = CALLS_MAX
    for index, after in events(trace):
        last_end = ranges[-1][1]
        begin = max(index - BEFORE, last_end)
        end = min(index + after, len(trace.calls), begin + remaining)
        if begin == last_end:
            ranges[-1] = (ranges[-1][0], max(end, last_end))
        elif begin < end:
            ranges.append((begin, end))
        remaining -= max(0, end - begin)
    return ranges


def write_calls(trace, to):
    columns = (
        "call excerpt after_us after_jiffies arg rtt_us state limited cwnd_before cnt_before "
        "ssthresh_before cwnd cnt ssthresh packets_out sacked_out lost_out retrans_out newly_delivered"
    ).split()
    to.write(trace.header() + ",".join(columns + trace.private_names) + "\n")
    previous, jiffies, time_us, delivered = [], trace.calls[0].jiffies, 0, 0
    for number, (begin, end) in enumerate(excerpts(trace)):
        for call in map(trace.calls.__getitem__, range(begin, end)):
            row = [CALLS[chr(call.kind)], number, trace.time_us(call) - time_us, call.jiffies - jiffies]
            row += [STATES[call.arg] if call.kind == ord("s") else call.arg, call.rtt_us]
            row += [STATES[call.state], call.limited, call.cwnd_before, call.cnt_before]
            row += [call.ssthresh_before, call.cwnd, call.cnt, call.ssthresh, call.packets_out]
            row += [call.sacked_out, call.lost_out, call.retrans_out, call.delivered - delivered]
            row += trace.private(call)
            to.write(",".join(changes(row, previous)) + "\n")
            previous, jiffies, time_us, delivered = row, call.jiffies, trace.time_us(call), call.delivered


def changes(row, previous):
    """Returns a row as text. A value that is equal to that of the previous row is empty."""
    return [str(cell) if index >= len(previous) or previous[index] != cell else "" for index, cell in enumerate(row)]


def write(path, rows, trace):
    """Writes a gzip file without name and time, so that the same rows give the same file."""
    with open(path, "wb") as file:
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, io.TextIOWrapper(packed) as to:
            rows(trace, to)


def main(run, vector):
    trace = Trace(Path(run))
    write(vector + ".rounds.csv.gz", write_rounds, trace)
    write(vector + ".calls.csv.gz", write_calls, trace)


if __name__ == "__main__":
    main(*sys.argv[1:])
