#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a test vector of a recorded flow.

    condense.py RUN VECTOR

reads RUN/cell, RUN/calls, RUN/release and RUN/data_packets and writes VECTOR.rounds.csv and
VECTOR.calls.csv.gz, whose format tests/vectors/README.md explains.
"""

import gzip
import io
import struct
import sys
from collections import namedtuple
from pathlib import Path

# struct call of kernel/call.h
CALL = struct.Struct("<QI4BIi16I64s")
FIELDS = (
    "time_ns jiffies kind state limited reserved arg rtt_us in_flight "
    "cwnd_before cnt_before ssthresh_before cwnd cnt ssthresh srtt_us packets_out sacked_out lost_out "
    "retrans_out delivered una nxt total_retrans private"
)
Call = namedtuple("Call", FIELDS)

# What the kernel's files keep in icsk_ca_priv; x is what follows from a random sequence number.
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

# Calls that a vector holds at most: about 100 KB of gzip.
CALLS_MAX = 24_000
# Round trips of the smoothed RTT around what an excerpt is for.
RTTS_BEFORE = 2
RTTS_AFTER = 8


def read_cell(path):
    """NAME=VALUE lines, values perhaps in single quotes."""
    pairs = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {name: value.strip("'") for name, value in pairs}


def read_calls(path):
    """From init on: the ACK of the handshake comes before it and finds nothing prepared."""
    calls = [Call._make(fields) for fields in CALL.iter_unpack(path.read_bytes())]
    first = next(index for index, call in enumerate(calls) if chr(call.kind) == "i")
    return calls[first:]


class Trace:
    def __init__(self, run):
        self.cell = read_cell(run / "cell")
        self.release = (run / "release").read_text().strip()
        self.data_packets = (run / "data_packets").read_text().strip()
        self.calls = read_calls(run / "calls")
        layout, names = PRIVATE[self.cell["control"]]
        self.private_layout = struct.Struct("<" + layout)
        self.private_names = names.split()

    def time_us(self, call):
        return (call.time_ns - self.calls[0].time_ns) // 1000

    def private(self, call):
        return self.private_layout.unpack_from(call.private)

    def header(self):
        lines = [f"# kernel: {self.release}", "# hz: 1000", "# mss: 1448"]
        lines += [f"# {name}: {value}" for name, value in self.cell.items()]
        lines.append(f"# packets: {self.data_packets}")
        return "".join(line + "\n" for line in lines)




def rounds(trace):
    """The calls at which a round trip ended, and those that told of a loss or its end."""
    mark = 0
    for call in trace.calls:
        kind = chr(call.kind)
        if kind in "itsu":
            yield CALLS[kind], call
        elif kind in "pa" and call.una > mark:
            mark = call.nxt
            yield "round", call


def write_rounds(trace, to):
    columns = "time_us why state arg cwnd cnt ssthresh srtt_us packets_out delivered total_retrans".split()
    to.write(trace.header() + ",".join(columns + trace.private_names) + "\n")
    for why, call in rounds(trace):
        arg = call.arg
        if why == "set_state":
            arg = STATES[arg]
        elif why in ("round", "init"):
            arg = ""
        row = [trace.time_us(call), why, STATES[call.state], arg, call.cwnd, call.cnt, call.ssthresh]
        row += [call.srtt_us, call.packets_out, call.delivered, call.total_retrans, *trace.private(call)]
        to.write(",".join(map(str, row)) + "\n")


def episodes(trace):
    """(first, last) indices of calls: the start, and each stay outside Open and Disorder."""
    yield 0, 0
    first = None
    for index, call in enumerate(trace.calls):
        if call.kind == ord("s"):
            if call.arg >= 2 and first is None:
                first = index
            elif call.arg < 2 and first is not None:
                yield first, index
                first = None


def window(trace, first, last):
    """Indices of the calls some round trips around an episode."""
    calls = trace.calls
    srtt_ns = max(calls[last].srtt_us, int(trace.cell["delay"].removesuffix("ms")) * 2000) * 1000
    begin, end = first, last
    while begin > 0 and calls[begin - 1].time_ns >= calls[first].time_ns - RTTS_BEFORE * srtt_ns:
        begin -= 1
    while end + 1 < len(calls) and calls[end + 1].time_ns <= calls[last].time_ns + RTTS_AFTER * srtt_ns:
        end += 1
    return begin, end + 1


def is_kept(call):
    """An ACK is a row of its own only where it may lead to no other call."""
    return call.kind != ord("k") or call.state > 0


def excerpts(trace):
    """Disjoint ranges of calls, in order, as many as the bound allows; all if that is asked for."""
    if trace.cell.get("calls") == "all":
        return [(0, len(trace.calls))]
    chosen, room, reached = [], CALLS_MAX, 0
    for first, last in episodes(trace):
        begin, end = window(trace, first, last)
        begin = max(begin, reached)
        size = sum(map(is_kept, trace.calls[begin:end]))
        if begin >= end or size > room:
            continue
        if chosen and chosen[-1][1] == begin:
            chosen[-1] = (chosen[-1][0], end)
        else:
            chosen.append((begin, end))
        room, reached = room - size, end
    return chosen


def write_calls(trace, to):
    columns = (
        "excerpt time_us jiffies call arg rtt_us state limited cwnd_before cnt_before ssthresh_before "
        "cwnd cnt ssthresh packets_out sacked_out lost_out retrans_out delivered"
    ).split()
    to.write(trace.header() + ",".join(columns + trace.private_names) + "\n")
    for number, (begin, end) in enumerate(excerpts(trace)):
        for call in filter(is_kept, trace.calls[begin:end]):
            arg = STATES[call.arg] if call.kind == ord("s") else call.arg
            row = [number, trace.time_us(call), call.jiffies, CALLS[chr(call.kind)], arg, call.rtt_us]
            row += [STATES[call.state], call.limited, call.cwnd_before, call.cnt_before]
            row += [call.ssthresh_before, call.cwnd, call.cnt, call.ssthresh, call.packets_out]
            row += [call.sacked_out, call.lost_out, call.retrans_out, call.delivered]
            to.write(",".join(map(str, row + list(trace.private(call)))) + "\n")


def main(run, vector):
    trace = Trace(Path(run))
    with open(vector + ".rounds.csv", "w") as to:
        write_rounds(trace, to)
    # Without name and time in it, the same calls give the same file.
    with open(vector + ".calls.csv.gz", "wb") as file:
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, io.TextIOWrapper(packed) as to:
            write_calls(trace, to)


if __name__ == "__main__":
    main(*sys.argv[1:])
