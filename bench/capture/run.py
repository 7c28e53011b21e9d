#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cost of capturing an iperf3 flow at line rate, compared with tcpdump, and accuracy of the timestamps.

    bench/capture/run.py [--only cost,times] [--seconds 4] [--rounds 5]

  cost   iperf3 over veth, with offloads (super-packets) and without (segments). Runs without a capture, with
         longhaul and with tcpdump -s 128 alternate; their rings have the same size. Measures goodput, packets
         a second, drops, and CPU seconds for a million packets. The CPU time includes start and end: the kernel
         zeroes a new ring, which takes longer than capturing a million packets if the ring is large.
  times  longhaul tap capture at the left end of `longhaul link --capture`, packet by packet: the difference
         between its timestamps and those of the link for the same packets

The tables have medians of the rounds, with minimum and maximum. Needs root, iperf3 and ethtool.
"""
import collections, json, pathlib, re, signal, struct, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, emulated_link, hosts, iperf3, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

SENDER, RECEIVER = ("sender", "10.80.0.1/30"), ("receiver", "10.80.0.2/30")
HOST, PORT = "10.80.0.2", 5201
RING_MB = 32


def iperf3_server():
    return Program(RECEIVER[0], "iperf3", "-s", ready=PORT)


def gbit_s(seconds):
    return iperf3(SENDER[0], "-c", HOST, "-t", seconds)["sum_received"]["bits_per_second"] / 1e9


class Longhaul(Program):
    def __init__(self, args, path):
        super().__init__(None, args.longhaul, "tap", "capture", "--netns", SENDER[0], "-i", "wan0", "--json", "--force",
                         "--ring", f"{RING_MB}MiB", "--snap-length", 128, "--filter", f"tcp port {PORT}", "-w", path, ready=".", stop=signal.SIGINT)

    def counts(self):
        """Returns captured packets, drops and segments on the wire, after the end."""
        counts = json.loads(self.output())["interfaces"][0]
        return counts["packets"], counts["dropped"], counts["wire_segments"]


class Tcpdump(Program):
    def __init__(self, _, path):
        # -Z root: tcpdump would drop its privileges, and could not write to this directory.
        super().__init__(SENDER[0], "tcpdump", "-i", "wan0", "-s", 128, "-n", "-Z", "root", "-B", RING_MB * 1024,
                         "--time-stamp-precision=nano", "-w", path, f"tcp port {PORT}", ready="listening on", stop=signal.SIGINT)

    def counts(self):
        self.output()
        number = lambda label: int(re.search(rf"(\d+) packets {label}", self.read(self.err))[1])
        return number("captured"), number("dropped by kernel"), None


CAPTURERS = {"none": None, "longhaul": Longhaul, "tcpdump": Tcpdump}


def cost(args, capturer, offload, directory):
    row, path = {"part": "cost", "capturer": capturer, "offload": offload}, directory / "trace"
    with hosts(SENDER[0], RECEIVER[0]):
        add_veth(SENDER, RECEIVER, offload=offload)
        with iperf3_server():
            if CAPTURERS[capturer] is None:
                return row | {"gbit_s": gbit_s(args.seconds)}
            with CAPTURERS[capturer](args, path) as program:
                row["gbit_s"] = gbit_s(args.seconds)
                program.terminate()
                packets, dropped, segments = program.counts()
    row |= {"packets": packets, "dropped": dropped, "wire_segments": segments, "cpu_s": program.cpu_s,
            "packets_s": packets / args.seconds, "cpu_s_per_million": program.cpu_s / packets * 1e6, "bytes": path.stat().st_size}
    path.unlink()
    return row


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


def times(args, directory):
    link_trace, trace = directory / "link.pcapng", directory / "trace.pcapng"
    with hosts(SENDER[0], RECEIVER[0]):
        with emulated_link(args.longhaul, SENDER, RECEIVER, "--delay", "5ms", "--rate", "200mbit", "--delivery", "per-packet", "--no-offload",
                  "--realtime", "--capture", link_trace), iperf3_server(), Longhaul(args, trace) as program:
            gbit_s(args.seconds)
            program.terminate()
            packets, dropped, _ = program.counts()
    link_times = collections.defaultdict(list)
    for interface, time_ns, outbound, packet in pcapng_packets(link_trace):
        if interface == 0 and (key := packet_key(packet)):
            link_times[outbound, key].append(time_ns)
    differences_us = {True: [], False: []}
    for _, time_ns, outbound, packet in pcapng_packets(trace):
        found = link_times.get((outbound, packet_key(packet)))
        if found:
            differences_us[outbound].append((time_ns - found.pop(0)) / 1e3)
    return {"part": "times", "packets": packets, "dropped": dropped, "matched": sum(map(len, differences_us.values())),
            "out_us": quantiles(differences_us[True]), "in_us": quantiles(differences_us[False])}


def quantiles(values):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return {"count": len(values), "min": values[0], "p1": at(.01), "p50": at(.5), "p99": at(.99), "max": values[-1]}


def cost_table(rows):
    heads = ["packets", "capture", "goodput, Gbit/s", "packets/s", "dropped", "CPU s per million"]
    return table(heads, (("super-packets" if offload else "segments", capturer, median_range(own, "gbit_s", ",.2f"), median_range(own, "packets_s", ",.0f"),
                          sum(row.get("dropped", 0) for row in own), median_range(own, "cpu_s_per_million", ",.2f"))
                         for (offload, capturer), own in group_by(rows, "offload", "capturer")))


def times_table(rows):
    directions = ((direction, row[direction]) for row in rows for direction in ("out_us", "in_us"))
    return table(["direction", "packets", "min", "p1", "median", "p99", "max"],
                 ((direction, q["count"], *(f"{q[key]:.1f}" for key in ("min", "p1", "p50", "p99", "max"))) for direction, q in directions if q))


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=["cost", "times"], metavar="PART,...")
    parser.add_argument("--seconds", type=int, default=4, help="length of a flow (4)")
    args = parse_args(parser, required=["iperf3", "ethtool"], seconds=1)
    run_in_namespaces()
    results, tables = Results(args, ["iperf3", "tcpdump"]), {"cost": cost_table, "times": times_table}
    capturers = ["none", "longhaul", *results.available({"tcpdump": "tcpdump"})]
    with tempfile.TemporaryDirectory(dir=args.out) as directory:
        directory = pathlib.Path(directory)
        cases = [(offload, capturer) for offload in (True, False) for capturer in capturers]
        for offload, capturer in cases * args.rounds * ("cost" in args.only):
            with results.catch_errors(f"cost, {capturer}", peer=capturer == "tcpdump"):
                results.add(cost(args, capturer, offload, directory))
        for _ in range(args.rounds * ("times" in args.only)):
            with results.catch_errors("times"):
                results.add(times(args, directory))
    return results.finish(line for part in args.only for line in tables[part]([row for row in results.rows if row["part"] == part]))


if __name__ == "__main__":
    sys.exit(main())
