#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""How fast captures are analysed, beside tcptrace and tshark.

    bench/tap/run.py [--only bulk,many] [--packets 3000000] [--rounds 5] [--tshark-rounds 1]

  bulk  one connection, recorded from iperf3 over `longhaul link` and continued: its packets again with
        later times and further sequence numbers
  many  its beginning again and again between other addresses, a few hundred connections at a time

Frames are Ethernet, cut to 96 bytes. In turns: longhaul with 1 and 2 threads (result.json, report and
courses), with 2 threads and every bin of 1 ms and 1 s as Parquet, tcptrace (-l: counts; -lr: round trips
too), a plain read of the file, and tshark (two series of 1 ms). Packets a second, CPU seconds and peak
memory, medians of the rounds with least and most. Needs root, tcpdump and iperf3.
"""
import multiprocessing, pathlib, shutil, signal, struct, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, iperf3, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.80.1.1/30"), ("right", "10.80.1.2/30")
ETHERNET = bytes(12) + b"\x08\x00"
SNAPLEN = 96
FIN_SYN_RST = 7


def record(longhaul, path):
    """A transfer of iperf3 at 1 Gbit/s and 20 ms with a little loss, segment by segment."""
    with hosts(LEFT[0], RIGHT[0]), \
            emulated_link(longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%"), \
            Program(LEFT[0], "tcpdump", "-Z", "root", "-i", "wan0", "-B", 65536, "-s", 96, "-w", path, "tcp",
                    ready="listening on", stop=signal.SIGINT), \
            Program(RIGHT[0], "iperf3", "-s", ready=5201):
        iperf3(LEFT[0], "-c", "10.80.1.2", "-n", "100M")
        time.sleep(1)


def packets(path):
    """(ns, wire length, IP bytes) of a pcap file of raw IP, as tcpdump writes it."""
    data = path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B2C3D4 and struct.unpack_from("<I", data, 20)[0] in (12, 101)
    at = 24
    while at + 16 <= len(data):
        seconds, micros, caplen, wire = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + micros * 1000, wire, data[at + 16 : at + 16 + caplen]
        at += 16 + caplen


def largest_flow(path):
    flows = {}
    for packet in packets(path):
        ip = packet[2]
        flows.setdefault(frozenset((ip[12:16] + ip[20:22], ip[16:20] + ip[22:24])), []).append(packet)
    return max(flows.values(), key=len)


def payload(ip):
    return struct.unpack_from(">H", ip, 2)[0] - 20 - (ip[32] >> 4) * 4


def marked(ip):
    """Offsets of the times and of the SACK edges."""
    at, end = 40, 20 + (ip[32] >> 4) * 4
    while at + 1 < min(end, len(ip)) and ip[at]:
        if ip[at] == 1:
            at += 1
            continue
        if ip[at] == 8:
            yield "times", at + 2
        if ip[at] == 5:
            yield from (("edge", edge) for edge in range(at + 2, at + ip[at + 1], 4))
        at += max(ip[at + 1], 2)


class Pcap:
    def __init__(self, path):
        self.file = open(path, "wb", buffering=1 << 20)
        self.file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAPLEN, 1))
        self.count = 0

    def write(self, ns, wire, ip):
        frame = (ETHERNET + ip)[:SNAPLEN]
        self.file.write(struct.pack("<IIII", ns // 10**9, ns % 10**9, len(frame), wire + 14) + frame)
        self.count += 1


def continued(flow, wanted, path):
    """The connection goes on with the same packets, later and further on."""
    begin = [packet for packet in flow[:3]]
    body = [packet for packet in flow[3:] if not packet[2][33] & FIN_SYN_RST]
    client = begin[0][2][12:16]
    sent = {True: 0, False: 0}
    for _, _, ip in body:
        own = ip[12:16] == client
        seq = struct.unpack_from(">I", ip, 24)[0]
        first = struct.unpack_from(">I", begin[0 if own else 1][2], 24)[0] + 1
        sent[own] = max(sent[own], (seq + payload(ip) - first) % 2**32)
    out = Pcap(path)
    for packet in begin:
        out.write(*packet)
    length = body[-1][0] - begin[-1][0] + 1000
    places = [list(marked(ip)) for _, _, ip in body]
    turn = 0
    while out.count < wanted:
        for (ns, wire, ip), marks in zip(body, places):
            ip = bytearray(ip)
            own = ip[12:16] == client
            add = lambda at, by: struct.pack_into(">I", ip, at, (struct.unpack_from(">I", ip, at)[0] + by) % 2**32)
            add(24, turn * sent[own])
            add(28, turn * sent[not own])
            for kind, at in marks:
                if kind == "edge" and at + 4 <= len(ip):
                    add(at, turn * sent[not own])
                elif kind == "times":
                    add(at, turn * length // 10**6)
                    add(at + 4, turn * length // 10**6)
            out.write(ns + turn * length, wire, bytes(ip))
            if out.count == wanted:
                break
        turn += 1
    out.file.close()


def repeated(flow, wanted, path, each=1500, at_once=200):
    """The beginning of the connection between many addresses, `at_once` of them at a time."""
    begin = flow[:each]
    length = begin[-1][0] - begin[0][0]
    out, client = Pcap(path), begin[0][2][12:16]
    for group in range(-(-wanted // (each * at_once))):
        times = [(ns + copy * length // at_once // 50 + group * 2 * length, copy, at)
                 for copy in range(at_once) for at, (ns, _, _) in enumerate(begin)]
        for ns, copy, at in sorted(times):
            _, wire, ip = begin[at]
            ip = bytearray(ip)
            number = group * at_once + copy
            place = 12 if ip[12:16] == client else 16
            struct.pack_into(">I", ip, place, 0x0A000000 + number)
            struct.pack_into(">H", ip, 20 if place == 12 else 22, 1024 + number % 60000)
            if out.count < wanted:
                out.write(ns, wire, bytes(ip))
    out.file.close()


def make(args):
    recorded = args.out / "recorded.pcap"
    record(args.longhaul, recorded)
    flow = largest_flow(recorded)
    for name in args.only:
        {"bulk": continued, "many": repeated}[name](flow, args.packets, args.out / f"{name}.pcap")


def timed(command, out):
    """Seconds, CPU seconds, peak memory in MB (this script's own, some 17 MB, is the least there is)."""
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    with Program(None, *command) as program:
        program.wait()
        seconds = time.monotonic() - began
        program.output()
        return {"seconds": seconds, "cpu_s": program.cpu_s, "mb": program.peak_mb}


def commands(args, file, out):
    """By who it is: the command, and the program that must be there."""
    analyze = [args.longhaul, "tap", "analyze", file, "-o", out]
    series = ["tshark", "-r", file, "-q", "-z", "io,stat,0.001,SUM(tcp.len)tcp.len,COUNT(tcp.ack)tcp.ack"]
    return {
        "plain read": ["dd", f"if={file}", "of=/dev/null", "bs=256k"],
        "longhaul, 1 thread": [*analyze, "--threads", 1],
        "longhaul, 2 threads": [*analyze, "--threads", 2],
        "longhaul, 2 threads, --parquet": [*analyze, "--threads", 2, "--parquet"],
        "tcptrace -l": ["tcptrace", "-n", "-l", file],
        "tcptrace -lr": ["tcptrace", "-n", "-l", "-r", file],
        "tshark, two series": series,
    }


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=["bulk", "many"], metavar="KIND,...")
    parser.add_argument("--packets", type=int, default=3_000_000)
    parser.add_argument("--tshark-rounds", type=int, default=1)
    args = parse_args(parser, required=["tcpdump", "iperf3"], packets=100_000)
    run_in_namespaces()
    results = Results(args, ["tcpdump", "iperf3", "tcptrace", "tshark"], packets=args.packets)
    # In a process of its own: a program's peak memory counts from that of whoever starts it.
    maker = multiprocessing.Process(target=make, args=(args,))
    maker.start()
    maker.join()
    if maker.exitcode:
        results.fail("captures", "none were made")
        return results.finish([])
    contenders = commands(args, None, None)
    present = results.available({who: str(words[0]) for who, words in contenders.items()})
    for name in args.only:
        file, out = args.out / f"{name}.pcap", args.out / "analysis"
        for turn in range(args.rounds):
            for who in present:
                if who.startswith("tshark") and turn >= args.tshark_rounds:
                    continue
                with results.catch_errors(f"{name}, {who}", peer="longhaul" not in who):
                    run = timed(commands(args, file, out)[who], out)
                    results.add({"kind": name, "who": who, **run, "million_packets_s": args.packets / run["seconds"] / 1e6})
    return results.finish(table(["", "", "M packets/s", "CPU s", "peak MB"],
                               ((*key, *(median_range(own, figure, ".3g") for figure in ("million_packets_s", "cpu_s", "mb")))
                                for key, own in group_by(results.rows, "kind", "who"))))


if __name__ == "__main__":
    sys.exit(main())
