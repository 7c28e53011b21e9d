#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speed of `longhaul tap analyze`, compared with tcptrace and tshark.

    bench/tap/run.py [--only bulk,many] [--packets 3000000] [--rounds 5] [--tshark-rounds 1] [--before PATH [--no-peers]]

  bulk  one connection, captured from iperf3 over `longhaul link` and made longer: its packets are repeated with
        later times and higher sequence numbers
  many  the beginning of that connection, repeated between other addresses, a few hundred connections at a time

Frames are Ethernet, cut to 96 bytes. These alternate: longhaul with 1 and 2 threads (result.json, report and time
series), with 2 threads and all bins of 1 ms and 1 s as Parquet, tcptrace (-l: counts; -lr: RTTs, too), a plain read of
the file, and tshark (two series of 1 ms). The table has packets a second, CPU seconds and peak memory: medians of the
rounds, with minimum and maximum. `--before` adds an older longhaul. Needs root, tcpdump and iperf3.
"""
import multiprocessing, pathlib, shutil, signal, statistics, struct, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, iperf3, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.80.1.1/30"), ("right", "10.80.1.2/30")
ETHERNET = bytes(12) + b"\x08\x00"
SNAPLEN = 96
FIN_SYN_RST = 7
BEFORE = ", before"


def capture(longhaul, path):
    """Captures an iperf3 transfer at 1 Gbit/s and 20 ms with a little loss, without offloads."""
    with hosts(LEFT[0], RIGHT[0]), \
            emulated_link(longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%"), \
            Program(LEFT[0], "tcpdump", "-Z", "root", "-i", "wan0", "-B", 65536, "-s", 96, "-w", path, "tcp",
                    ready="listening on", stop=signal.SIGINT), \
            Program(RIGHT[0], "iperf3", "-s", ready=5201):
        iperf3(LEFT[0], "-c", "10.80.1.2", "-n", "100M")
        time.sleep(1)


def packets(path):
    """Yields (ns, wire length, IP bytes) of the packets of a pcap file of raw IP, as tcpdump writes it."""
    data = path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B2C3D4 and struct.unpack_from("<I", data, 20)[0] in (12, 101)
    offset = 24
    while offset + 16 <= len(data):
        seconds, micros, caplen, wire = struct.unpack_from("<IIII", data, offset)
        yield seconds * 10**9 + micros * 1000, wire, data[offset + 16 : offset + 16 + caplen]
        offset += 16 + caplen


def largest_flow(path):
    """Returns the packets of the connection that has most of them."""
    flows = {}
    for packet in packets(path):
        ip = packet[2]
        flows.setdefault(frozenset((ip[12:16] + ip[20:22], ip[16:20] + ip[22:24])), []).append(packet)
    return max(flows.values(), key=len)


def payload_bytes(ip):
    """Payload of a TCP segment, by its headers."""
    return struct.unpack_from(">H", ip, 2)[0] - 20 - (ip[32] >> 4) * 4


def option_fields(ip):
    """Yields the offsets of TCP timestamps and of SACK edges."""
    at, end = 40, 20 + (ip[32] >> 4) * 4
    while at + 1 < min(end, len(ip)) and ip[at]:
        if ip[at] == 1:
            at += 1
            continue
        if ip[at] == 8:
            yield "timestamps", at + 2
        if ip[at] == 5:
            yield from (("edge", edge) for edge in range(at + 2, at + ip[at + 1], 4))
        at += max(ip[at + 1], 2)


class PcapWriter:
    """Writes Ethernet frames to a pcap file with times in ns."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=1 << 20)
        self.file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAPLEN, 1))
        self.count = 0

    def write(self, ns, wire, ip):
        frame = (ETHERNET + ip)[:SNAPLEN]
        self.file.write(struct.pack("<IIII", ns // 10**9, ns % 10**9, len(frame), wire + 14) + frame)
        self.count += 1


def write_longer(flow, packet_count, path):
    """Writes a connection of `packet_count` packets: those of `flow` repeated, later and with higher sequence numbers."""
    handshake = flow[:3]
    data = [packet for packet in flow[3:] if not packet[2][33] & FIN_SYN_RST]
    client = handshake[0][2][12:16]
    sent = {True: 0, False: 0}
    for _, _, ip in data:
        from_client = ip[12:16] == client
        seq = struct.unpack_from(">I", ip, 24)[0]
        first = struct.unpack_from(">I", handshake[0 if from_client else 1][2], 24)[0] + 1
        sent[from_client] = max(sent[from_client], (seq + payload_bytes(ip) - first) % 2**32)
    out = PcapWriter(path)
    for packet in handshake:
        out.write(*packet)
    length = data[-1][0] - handshake[-1][0] + 1000
    fields = [list(option_fields(ip)) for _, _, ip in data]
    repetition = 0
    while out.count < packet_count:
        for (ns, wire, ip), options in zip(data, fields):
            ip = bytearray(ip)
            from_client = ip[12:16] == client
            add = lambda at, by: struct.pack_into(">I", ip, at, (struct.unpack_from(">I", ip, at)[0] + by) % 2**32)
            add(24, repetition * sent[from_client])
            add(28, repetition * sent[not from_client])
            for kind, at in options:
                if kind == "edge" and at + 4 <= len(ip):
                    add(at, repetition * sent[not from_client])
                elif kind == "timestamps":
                    add(at, repetition * length // 10**6)
                    add(at + 4, repetition * length // 10**6)
            out.write(ns + repetition * length, wire, bytes(ip))
            if out.count == packet_count:
                break
        repetition += 1
    out.file.close()


def write_many(flow, packet_count, path, each=1500, concurrent=200):
    """Writes the first `each` packets of a connection between many addresses, `concurrent` of them at a time."""
    start = flow[:each]
    length = start[-1][0] - start[0][0]
    out, client = PcapWriter(path), start[0][2][12:16]
    for group in range(-(-packet_count // (each * concurrent))):
        packets = [(ns + copy * length // concurrent // 50 + group * 2 * length, copy, index)
                   for copy in range(concurrent) for index, (ns, _, _) in enumerate(start)]
        for ns, copy, index in sorted(packets):
            _, wire, ip = start[index]
            ip = bytearray(ip)
            number = group * concurrent + copy
            address_offset = 12 if ip[12:16] == client else 16
            struct.pack_into(">I", ip, address_offset, 0x0A000000 + number)
            struct.pack_into(">H", ip, 20 if address_offset == 12 else 22, 1024 + number % 60000)
            if out.count < packet_count:
                out.write(ns, wire, bytes(ip))
    out.file.close()


def make_captures(args):
    captured = args.out / "captured.pcap"
    capture(args.longhaul, captured)
    flow = largest_flow(captured)
    for name in args.only:
        {"bulk": write_longer, "many": write_many}[name](flow, args.packets, args.out / f"{name}.pcap")


def run_timed(command, out):
    """Runs a command. Returns its seconds, CPU seconds and peak memory in MB, which is at least that of this script, 17 MB."""
    shutil.rmtree(out, ignore_errors=True)
    started = time.monotonic()
    with Program(None, *command) as program:
        program.wait()
        seconds = time.monotonic() - started
        program.output()
        return {"seconds": seconds, "cpu_s": program.cpu_s, "mb": program.peak_mb}


def commands(args, file, out):
    """Returns the command of each program."""
    analyze = lambda longhaul: [longhaul, "tap", "analyze", file, "-o", out]
    ways = {"1 thread": ["--threads", 1], "2 threads": ["--threads", 2], "2 threads, --parquet": ["--threads", 2, "--parquet"]}
    own = {f"longhaul, {name}": [*analyze(args.longhaul), *options] for name, options in ways.items()}
    if args.before:
        own |= {f"longhaul, {name}{BEFORE}": [*analyze(args.before), *options] for name, options in ways.items()}
    series = ["tshark", "-r", file, "-q", "-z", "io,stat,0.001,SUM(tcp.len)tcp.len,COUNT(tcp.ack)tcp.ack"]
    if args.no_peers:
        return own
    return own | {
        "plain read": ["dd", f"if={file}", "of=/dev/null", "bs=256k"],
        "tcptrace -l": ["tcptrace", "-n", "-l", file],
        "tcptrace -lr": ["tcptrace", "-n", "-l", "-r", file],
        "tshark, two series": series,
    }


def table_lines(rows):
    figures = ("million_packets_s", "cpu_s", "mb")
    lines = [(*key, *(median_range(own, figure, ".3g") for figure in figures)) for key, own in group_by(rows, "kind", "program")]
    medians = {key: [statistics.median(row[figure] for row in own) for figure in figures] for key, own in group_by(rows, "kind", "program")}
    for (kind, program), before in medians.items():
        if program.endswith(BEFORE) and (now := medians.get((kind, program.removesuffix(BEFORE)))):
            lines.append((kind, f"ratio to {program}", *(f"{new / old:.3f}" for new, old in zip(now, before))))
    return table(["capture", "program", "M packets/s", "CPU s", "peak MB"], lines)


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=["bulk", "many"], metavar="KIND,...", help="kinds of captures (bulk,many)")
    parser.add_argument("--packets", type=int, default=3_000_000, help="packets of a capture (3000000)")
    parser.add_argument("--tshark-rounds", type=int, default=1, help="rounds of tshark, which is slow (1)")
    parser.add_argument("--before", type=pathlib.Path, metavar="PATH", help="an older longhaul to compare with")
    parser.add_argument("--no-peers", action="store_true", help="leave the other programs out")
    args = parse_args(parser, required=["tcpdump", "iperf3"], packets=100_000)
    run_in_namespaces()
    results = Results(args, ["tcpdump", "iperf3", "tcptrace", "tshark"], packets=args.packets)
    # In its own process: a program's peak memory begins with that of its parent.
    maker = multiprocessing.Process(target=make_captures, args=(args,))
    maker.start()
    maker.join()
    if maker.exitcode:
        results.fail("captures", "none was made")
        return results.finish([])
    programs = {name: str(command[0]) for name, command in commands(args, None, None).items()}
    available = results.available(programs)
    for kind in args.only:
        file, out = args.out / f"{kind}.pcap", args.out / "analysis"
        for round_ in range(args.rounds):
            for program in available:
                if program.startswith("tshark") and round_ >= args.tshark_rounds:
                    continue
                with results.catch_errors(f"{kind}, {program}", peer="longhaul" not in program):
                    run = run_timed(commands(args, file, out)[program], out)
                    results.add({"kind": kind, "program": program, **run, "million_packets_s": args.packets / run["seconds"] / 1e6})
    return results.finish(table_lines(results.rows))


if __name__ == "__main__":
    sys.exit(main())
