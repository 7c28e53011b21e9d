#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accuracy of the timestamps of `longhaul tap capture`. bench/capture-cost.toml measures what a capture costs.

    bench/capture/run.py [--seconds 4] [--rounds 5]

It captures at the left end of `longhaul link --capture`, packet by packet, and compares its timestamps with those of the link
for the same packets. Needs root and iperf3.
"""
import collections, json, pathlib, signal, struct, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import Program, Results, argument_parser, emulated_link, hosts, iperf3, parse_args, run_in_namespaces, table

SENDER, RECEIVER = ("sender", "10.80.0.1/30"), ("receiver", "10.80.0.2/30")
HOST, PORT = "10.80.0.2", 5201


def pcapng_packets(path):
    """Yields the packets of a little-endian pcapng file: interface, time in ns, whether it is outbound, bytes."""
    data, offset = path.read_bytes(), 0
    while offset + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, offset)
        if kind == 6:
            interface, high, low, caplen, _ = struct.unpack_from("<IIIII", data, offset + 8)
            begin, end = offset + 28, offset + length - 4
            option, flags = begin + (caplen + 3) // 4 * 4, 0
            while option + 4 <= end:
                code, size = struct.unpack_from("<HH", data, option)
                if code == 2:
                    flags = struct.unpack_from("<I", data, option + 4)[0]
                if code == 0:
                    break
                option += 4 + (size + 3) // 4 * 4
            yield interface, high << 32 | low, flags & 3 == 2, data[begin:begin + caplen]
        offset += length


def packet_key(packet):
    """Identifies a TCP segment by its headers, without the fields that change on the path (TTL, checksums)."""
    if packet[0] >> 4 != 4 or packet[9] != 6:
        return None
    tcp = (packet[0] & 15) * 4
    return packet[2:6] + packet[12:20] + packet[tcp:tcp + 16] + packet[tcp + 18:tcp + (packet[tcp + 12] >> 4) * 4]


def measure(args, directory):
    link_trace, trace = directory / "link.pcapng", directory / "trace.pcapng"
    capture = [args.longhaul, "tap", "capture", "--netns", SENDER[0], "-i", "wan0", "--json", "--force", "--ring", "32MiB", "--snap-length", 128,
               "--filter", f"tcp port {PORT}", "-w", trace]
    link_flags = ["--delay", "5ms", "--rate", "200mbit", "--delivery", "per-packet", "--no-offload", "--realtime", "--capture", link_trace]
    with hosts(SENDER[0], RECEIVER[0]), emulated_link(args.longhaul, SENDER, RECEIVER, *link_flags), \
            Program(RECEIVER[0], "iperf3", "-s", ready=PORT), Program(None, *capture, ready=".", stop=signal.SIGINT) as program:
        iperf3(SENDER[0], "-c", HOST, "-t", args.seconds)
        program.terminate()
        counts = json.loads(program.output())["interfaces"][0]
    return {"packets": counts["packets"], "dropped": counts["dropped"], **differences(link_trace, trace)}


def differences(link_trace, trace):
    """Differences of the times of the same packets, by direction."""
    link_times = collections.defaultdict(list)
    for interface, time_ns, outbound, packet in pcapng_packets(link_trace):
        if interface == 0 and (key := packet_key(packet)):
            link_times[outbound, key].append(time_ns)
    differences_us = {True: [], False: []}
    for _, time_ns, outbound, packet in pcapng_packets(trace):
        found = link_times.get((outbound, packet_key(packet)))
        if found:
            differences_us[outbound].append((time_ns - found.pop(0)) / 1e3)
    return {"out_us": quantiles(differences_us[True]), "in_us": quantiles(differences_us[False])}


def quantiles(values):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return {"count": len(values), "min": values[0], "p1": at(.01), "p50": at(.5), "p99": at(.99), "max": values[-1]}


def lines(rows):
    for direction, q in ((direction, row[direction]) for row in rows for direction in ("out_us", "in_us")):
        if q:
            yield direction, q["count"], *(f"{q[key]:.1f}" for key in ("min", "p1", "p50", "p99", "max"))


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=int, default=4, help="length of a flow (4)")
    args = parse_args(parser, required=["iperf3"], seconds=1)
    run_in_namespaces()
    results = Results(args, ["iperf3"])
    for round_ in range(args.rounds):
        with results.catch_errors(f"round {round_ + 1}"), tempfile.TemporaryDirectory(dir=args.out) as directory:
            results.add(measure(args, pathlib.Path(directory)))
    return results.finish(table(["direction", "packets", "min", "p1", "median", "p99", "max"], lines(results.rows)))


if __name__ == "__main__":
    sys.exit(main())
