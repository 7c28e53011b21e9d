#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Capacity of an intercepting relay: short connections from one address, and connections during a SYN flood.

    bench/interception/run.py [--longhaul PATH] [--connections 20000] [--rounds 5]

Client, router and server are network namespaces, joined by veth. The router forwards (`direct`) or runs a relay. Each
connection requests one byte, and the server closes it. In `flood` the client connects one by one for --seconds, while another
of its addresses sends SYNs as fast as it can to a port that does not respond. Needs root.
"""
import os, pathlib, socket, statistics, struct, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, hosts, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, group_by, median_range, parse_args, table

CLIENT, FLOODER, SERVER, PORT, SILENT = "10.9.1.1", "10.9.1.7", "10.9.2.1", 8080, 9090
RELAY = ["--transparent", "127.0.0.1:3129", "--intercept", f"{SERVER}:{PORT},{SILENT}"]
MODES = {"direct": None, "intercepted": [], "keep-source": ["--keep-source"], "verified": ["--verify-connect"],
        "both": ["--keep-source", "--verify-connect"]}
PROCESSES = 2


def serve():
    """Receives the client's port number on each connection. Sends one byte: 1 if the connection comes from that port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((SERVER, PORT))
    listener.listen(4096)
    print("ready", flush=True)
    while True:
        connection, (_, port) = listener.accept()
        try:
            connection.sendall(b"\1" if struct.unpack("!H", connection.recv(2))[0] == port else b"\0")
        except (OSError, struct.error):
            pass
        connection.close()


def connect():
    """Opens one connection. Returns whether its source port was kept; None if it failed."""
    try:
        with socket.socket() as connection:
            connection.settimeout(5)
            connection.connect((SERVER, PORT))
            connection.sendall(struct.pack("!H", connection.getsockname()[1]))
            return {b"\1": True, b"\0": False}.get(connection.recv(1))
    except OSError:
        return None


def connect_many(count):
    outcomes = [connect() for _ in range(count)]
    print(outcomes.count(True), outcomes.count(False), outcomes.count(None))


def connect_for(seconds):
    """Opens connections one by one. Prints how many succeeded and failed, and the median and longest time in ms."""
    end, times, failed = time.monotonic() + seconds, [], 0
    while (started := time.monotonic()) < end:
        if connect() is None:
            failed += 1
        else:
            times.append(time.monotonic() - started)
    print(len(times), failed, statistics.median(times) * 1e3 if times else 0, max(times, default=0) * 1e3)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return 0xFFFF - (total + (total >> 16) & 0xFFFF)


def flood():
    """Sends SYNs from each port of FLOODER until it is killed."""
    source, destination = socket.inet_aton(FLOODER), socket.inet_aton(SERVER)

    def syn(port):
        header = struct.pack("!HHIIBBHHH", port, SILENT, 1, 0, 5 << 4, 2, 65535, 0, 0)
        tcp_checksum = checksum(source + destination + struct.pack("!HH", socket.IPPROTO_TCP, len(header)) + header)
        return header[:16] + struct.pack("!H", tcp_checksum) + header[18:]

    segments = [syn(port) for port in range(1024, 65536)]
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    raw.bind((FLOODER, 0))
    print("ready", flush=True)
    while True:
        for segment in segments:
            raw.sendto(segment, (SERVER, 0))


def program(host, role, *arguments, **options):
    """Returns a Program that runs this script in another role."""
    return Program(host, sys.executable, __file__, role, *arguments, **options)


def many(args):
    started = time.monotonic()
    clients = [subprocess.Popen(netns_exec("client", sys.executable, __file__, "connect_many", args.connections // PROCESSES),
                                stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    kept, changed, failed = (sum(column) for column in zip(*(map(int, client.communicate()[0].split()) for client in clients)))
    elapsed_s = time.monotonic() - started
    return {"per_s": (kept + changed) / elapsed_s, "kept": kept / max(kept + changed, 1), "failed": failed}


def during_flood(args):
    with program("client", "flood", ready="ready"):
        completed, failed, median, longest = map(float, run_command(*netns_exec("client", sys.executable, __file__, "connect_for", args.seconds)).split())
    return {"per_s": completed / args.seconds, "failed": int(failed), "median_ms": median, "longest_ms": longest}


def measure(args, mode, case):
    with hosts("client", "router", "server"):
        add_veth(("client", f"{CLIENT}/24"), ("router", "10.9.1.2/24"), "near0")
        add_veth(("router", "10.9.2.2/24"), ("server", f"{SERVER}/24"), "far0")
        run_command("ip", "-n", "client", "address", "add", f"{FLOODER}/24", "dev", "near0")
        run_command("ip", "-n", "client", "route", "add", "default", "via", "10.9.1.2")
        run_command("ip", "-n", "server", "route", "add", "default", "via", "10.9.2.2")
        run_command(*netns_exec("router", "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        rules = f"table ip silent {{ chain c {{ type filter hook input priority 0\ntcp dport {SILENT} drop\n}}\n}}\n"
        subprocess.run(netns_exec("server", "nft", "-f", "-"), input=rules, text=True, check=True)
        servers = [program("server", "serve", ready="ready") for _ in range(PROCESSES)]
        relay = [] if MODES[mode] is None else [Program("router", args.longhaul, "relay", *RELAY, *MODES[mode], ready="listening transparent")]
        with servers[0], servers[1]:
            if not relay:
                return case(args)
            with relay[0]:
                time.sleep(0.3)
                return case(args)


CASES = {"many": many, "flood": during_flood}


def table_lines(rows):
    for (case, mode), own in group_by(rows, "case", "mode"):
        kept = median_range([row | {"kept": 100 * row["kept"]} for row in own if "kept" in row], "kept")
        yield [f"{case}, {mode}", median_range(own, "per_s"), kept, median_range(own, "failed"), median_range(own, "median_ms", ".2f"), median_range(own, "longest_ms")]


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--connections", type=int, default=20000, metavar="N", help="connections of one measurement (20000)")
    parser.add_argument("--seconds", type=int, default=8, metavar="N", help="length of a flood (8)")
    args = parse_args(parser, required=["nft"], connections=2000, seconds=2)
    run_in_namespaces()
    results = Results(args)
    for round_ in range(args.rounds):
        for mode in list(MODES)[:: 1 if round_ % 2 else -1]:
            for case in CASES:
                with results.catch_errors(f"{case}, {mode}"):
                    results.add({"case": case, "mode": mode, "round": round_, **measure(args, mode, CASES[case])})
    return results.finish(table(["case", "connections a second", "ports kept, %", "failed", "median, ms", "longest, ms"], table_lines(results.rows)))


ROLES = {"serve": serve, "flood": flood, "connect_many": lambda: connect_many(int(sys.argv[2])), "connect_for": lambda: connect_for(float(sys.argv[2]))}

if __name__ == "__main__":
    sys.exit(ROLES[sys.argv[1]]() if sys.argv[1:2] and sys.argv[1] in ROLES else main())
