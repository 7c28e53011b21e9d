#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it costs to capture an iperf3 flow at line rate, beside tcpdump, and how right the times are.

    bench/capture/run.py [--only cost,times] [--seconds 4] [--rounds 5]

  cost   iperf3 over veth, as super-packets and segment by segment (offloads off), with nobody, longhaul
         and tcpdump -s 128 looking on, in turns, with rings of the same size: goodput, packets a second,
         drops, CPU seconds for a million packets, start and end included: the kernel
         zeroes a ring when it is made, which takes longer than a million packets if it is large
  times  longhaul tap capture at the left end of `longhaul link --tap`, segment by segment: the difference
         between its times and those of the link, which took or gave the same packet

Tables have medians of the rounds, and least to most. Needs root, iperf3 and ethtool.
"""
import collections, json, pathlib, re, signal, struct, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, emulated_link, hosts, iperf3, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

SENDER, RECEIVER = ("sender", "10.80.0.1/30"), ("receiver", "10.80.0.2/30")
HOST, PORT = "10.80.0.2", 5201
RING_MB = 32


def serving():
    return Program(RECEIVER[0], "iperf3", "-s", ready=PORT)


def gbit_s(seconds):
    return iperf3(SENDER[0], "-c", HOST, "-t", seconds)["sum_received"]["bits_per_second"] / 1e9


class Longhaul(Program):
    def __init__(self, args, path):
        super().__init__(None, args.longhaul, "tap", "capture", "--netns", SENDER[0], "-i", "wan0", "--json", "--force",
                         "--ring", f"{RING_MB}MiB", "--snap", 128, "--filter", f"tcp port {PORT}", "-w", path, ready=".", stop=signal.SIGINT)

    def counted(self):
        """After its end."""
        counts = json.loads(self.output())["interfaces"][0]
        return counts["packets"], counts["dropped"], counts["wire_segments"]


class Tcpdump(Program):
    def __init__(self, _, path):
        # -Z root: without it tcpdump gives its rights up and can't write where this runs.
        super().__init__(SENDER[0], "tcpdump", "-i", "wan0", "-s", 128, "-n", "-Z", "root", "-B", RING_MB * 1024,
                         "--time-stamp-precision=nano", "-w", path, f"tcp port {PORT}", ready="listening on", stop=signal.SIGINT)

    def counted(self):
        self.output()
        number = lambda what: int(re.search(rf"(\d+) packets {what}", self.read(self.err))[1])
        return number("captured"), number("dropped by kernel"), None


LOOKERS = {"nobody": None, "longhaul": Longhaul, "tcpdump": Tcpdump}


def cost(args, looker, offload, directory):
    row, path = {"part": "cost", "looker": looker, "offload": offload}, directory / "trace"
    with hosts(SENDER[0], RECEIVER[0]):
        add_veth(SENDER, RECEIVER, offload=offload)
        with serving():
            if LOOKERS[looker] is None:
                return row | {"gbit_s": gbit_s(args.seconds)}
            with LOOKERS[looker](args, path) as program:
                row["gbit_s"] = gbit_s(args.seconds)
                program.terminate()
                packets, dropped, segments = program.counted()
    row |= {"packets": packets, "dropped": dropped, "wire_segments": segments, "cpu_s": program.cpu_s,
            "packets_s": packets / args.seconds, "cpu_s_a_million": program.cpu_s / packets * 1e6, "bytes": path.stat().st_size}
    path.unlink()
    return row


def blocks(path):
    """Packets of a little-endian pcapng file: interface, time in ns, whether it went out, bytes."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            interface, high, low, kept, _ = struct.unpack_from("<IIIII", data, at + 8)
            begin, end = at + 28, at + length - 4
            option, flags = begin + (kept + 3) // 4 * 4, 0
            while option + 4 <= end:
                code, size = struct.unpack_from("<HH", data, option)
                if code == 2:
                    flags = struct.unpack_from("<I", data, option + 4)[0]
                if code == 0:
                    break
                option += 4 + (size + 3) // 4 * 4
            yield interface, high << 32 | low, flags & 3 == 2, data[begin:begin + kept]
        at += length


def name_of(packet):
    """What tells one segment from all others: its headers without what is finished on the way."""
    if packet[0] >> 4 != 4 or packet[9] != 6:
        return None
    tcp = (packet[0] & 15) * 4
    return packet[2:6] + packet[12:20] + packet[tcp:tcp + 16] + packet[tcp + 18:tcp + (packet[tcp + 12] >> 4) * 4]


def times(args, directory):
    truth, trace = directory / "truth.pcapng", directory / "trace.pcapng"
    with hosts(SENDER[0], RECEIVER[0]):
        with emulated_link(args.longhaul, SENDER, RECEIVER, "--delay", "5ms", "--rate", "200mbit", "--delivery", "exact", "--no-offload",
                  "--realtime", "--tap", truth), serving(), Longhaul(args, trace) as program:
            gbit_s(args.seconds)
            program.terminate()
            packets, dropped, _ = program.counted()
    true_times = collections.defaultdict(list)
    for interface, at, outbound, packet in blocks(truth):
        if interface == 0 and (name := name_of(packet)):
            true_times[outbound, name].append(at)
    apart_us = {True: [], False: []}
    for _, at, outbound, packet in blocks(trace):
        found = true_times.get((outbound, name_of(packet)))
        if found:
            apart_us[outbound].append((at - found.pop(0)) / 1e3)
    return {"part": "times", "packets": packets, "dropped": dropped, "matched": sum(map(len, apart_us.values())),
            "out_us": quantiles(apart_us[True]), "in_us": quantiles(apart_us[False])}


def quantiles(values):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return {"count": len(values), "min": values[0], "p1": at(.01), "p50": at(.5), "p99": at(.99), "max": values[-1]}


def cost_table(rows):
    heads = ["packets", "looker", "goodput, Gbit/s", "packets/s", "dropped", "CPU s a million"]
    return table(heads, (("super-packets" if offload else "segments", looker, median_range(own, "gbit_s", ",.2f"), median_range(own, "packets_s", ",.0f"),
                          sum(row.get("dropped", 0) for row in own), median_range(own, "cpu_s_a_million", ",.2f"))
                         for (offload, looker), own in group_by(rows, "offload", "looker")))


def times_table(rows):
    quarters = ((way, row[way]) for row in rows for way in ("out_us", "in_us"))
    return table(["way", "packets", "least", "1 %", "median", "99 %", "most"],
                 ((way, q["count"], *(f"{q[key]:.1f}" for key in ("min", "p1", "p50", "p99", "max"))) for way, q in quarters if q))


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=["cost", "times"], metavar="PART,...")
    parser.add_argument("--seconds", type=int, default=4)
    args = parse_args(parser, required=["iperf3", "ethtool"], seconds=1)
    run_in_namespaces()
    results, tables = Results(args, ["iperf3", "tcpdump"]), {"cost": cost_table, "times": times_table}
    lookers = ["nobody", "longhaul", *results.available({"tcpdump": "tcpdump"})]
    with tempfile.TemporaryDirectory(dir=args.out) as directory:
        directory = pathlib.Path(directory)
        cells = [(offload, looker) for offload in (True, False) for looker in lookers]
        for offload, looker in cells * args.rounds * ("cost" in args.only):
            with results.catch_errors(f"cost, {looker}", peer=looker == "tcpdump"):
                results.add(cost(args, looker, offload, directory))
        for _ in range(args.rounds * ("times" in args.only)):
            with results.catch_errors("times"):
                results.add(times(args, directory))
    return results.finish(line for part in args.only for line in tables[part]([row for row in results.rows if row["part"] == part]))


if __name__ == "__main__":
    sys.exit(main())
