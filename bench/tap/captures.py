#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the captures that bench/tap.toml analyses: `bulk.pcap` and `many.pcap` in DIR.

    bench/tap/captures.py [--packets 3000000] [--out DIR]

  bulk  one connection, captured from iperf3 over `longhaul link` and made longer: its packets are repeated with
        later times and higher sequence numbers
  many  the beginning of that connection, repeated between other addresses, a few hundred connections at a time

Frames are Ethernet, cut to 96 bytes. Needs root, tcpdump and iperf3.
"""
import pathlib, signal, struct, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import Program, argument_parser, emulated_link, hosts, iperf3, parse_args, run_in_namespaces

LEFT, RIGHT = ("left", "10.80.1.1/30"), ("right", "10.80.1.2/30")
ETHERNET = bytes(12) + b"\x08\x00"
SNAPLEN = 96
FIN_SYN_RST = 7


def capture(longhaul, path):
    """Captures an iperf3 transfer at 1 Gbit/s and 20 ms with a little loss, without offloads."""
    with hosts(LEFT[0], RIGHT[0]), \
            emulated_link(longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%"), \
            Program(LEFT[0], "tcpdump", "-Z", "root", "-i", "wan0", "-B", 65536, "-s", SNAPLEN, "-w", path, "tcp",
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


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--packets", type=int, default=3_000_000, help="packets of a capture (3000000)")
    args = parse_args(parser, required=["tcpdump", "iperf3"], packets=100_000)
    run_in_namespaces()
    args.out.mkdir(parents=True, exist_ok=True)
    captured = args.out / "captured.pcap"
    capture(args.longhaul, captured)
    flow = largest_flow(captured)
    write_longer(flow, args.packets, args.out / "bulk.pcap")
    write_many(flow, args.packets, args.out / "many.pcap")
    captured.unlink()


if __name__ == "__main__":
    sys.exit(main())
