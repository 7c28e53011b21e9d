#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the captures that bench/tap.toml analyses: `bulk.pcap` and `many.pcap` in DIR.

    bench/tap/captures.py [--packets 3000000] [--out DIR]

  bulk  one connection, captured from iperf3 over `longhaul link`
  many  the beginning of that connection, repeated between other addresses, a few hundred connections at a time

Frames are Ethernet, cut to 96 bytes. Needs root, tcpdump and iperf3.
"""
import collections, itertools, pathlib, signal, struct, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import Program, argument_parser, emulated_link, hosts, iperf3, parse_args, run_in_namespaces

LEFT, RIGHT = ("left", "10.80.1.1/30"), ("right", "10.80.1.2/30")
ETHERNET = bytes(12) + b"\x08\x00"
SNAPLEN = 96


def capture(longhaul, path, packet_count):
    """Captures an iperf3 transfer at 1 Gbit/s and 20 ms with a little loss, without offloads."""
    with hosts(LEFT[0], RIGHT[0]), \
            emulated_link(longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%"), \
            Program(LEFT[0], "tcpdump", "-Z", "root", "-i", "wan0", "-B", 65536, "-s", SNAPLEN, "-w", path, "tcp",
                    ready="listening on", stop=signal.SIGINT), \
            Program(RIGHT[0], "iperf3", "-s", ready=5201):
        # At most one ACK for each data packet.
        iperf3(LEFT[0], "-c", "10.80.1.2", "-n", packet_count * 1448)
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


def connection(packet):
    ip = packet[2]
    return frozenset((ip[12:16] + ip[20:22], ip[16:20] + ip[22:24]))


def bulk_packets(path):
    """Yields the packets of the connection that has most of them."""
    counts = collections.Counter(map(connection, itertools.islice(packets(path), 1000)))
    return (packet for packet in packets(path) if connection(packet) == counts.most_common(1)[0][0])


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


def write_bulk(flow, packet_count, path):
    out = PcapWriter(path)
    for packet in itertools.islice(flow, packet_count):
        out.write(*packet)
    out.file.close()
    if out.count < packet_count:
        sys.exit(f"only {out.count} packets were captured")


def write_many(start, packet_count, path, concurrent=200):
    """Writes the beginning of a connection between many addresses, `concurrent` of them at a time."""
    length = start[-1][0] - start[0][0]
    out, client = PcapWriter(path), start[0][2][12:16]
    for group in range(-(-packet_count // (len(start) * concurrent))):
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
    capture(args.longhaul, captured, args.packets)
    write_bulk(bulk_packets(captured), args.packets, args.out / "bulk.pcap")
    write_many(list(itertools.islice(bulk_packets(captured), 1500)), args.packets, args.out / "many.pcap")
    captured.unlink()


if __name__ == "__main__":
    sys.exit(main())
