#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory of a relay for slow request heads: resident bytes for each connection.

    bench/heads/run.py [--connections 2000]

`longhaul relay --http` receives connections with unfinished heads of 5 bytes, 4 kB and 63 kB, on new connections and on ones that
had a request before. The figures are the growth of the process for each connection, without kernel sockets, and the relay's
own count (memory_bytes).
"""
import json, pathlib, re, resource, socket, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import Program, Results, argument_parser, parse_args, table

REFUSED_REQUEST = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n"


def resident_bytes(relay):
    with open(f"/proc/{relay.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def stable_resident_bytes(relay):
    """Returns the resident size once it has not changed for a second."""
    size, changed_at = resident_bytes(relay), time.monotonic()
    while time.monotonic() - changed_at < 1:
        time.sleep(0.1)
        now = resident_bytes(relay)
        if now != size:
            size, changed_at = now, time.monotonic()
    return size


def counted_bytes(path):
    """The last memory_bytes in the relay's counters."""
    with open(path) as file:
        lines = [line for line in file.read().splitlines() if '"relay"' in line]
    return json.loads(lines[-1])["memory_bytes"]


def read_response(client):
    """Reads the response to a refused request."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(65536)
    length = int(re.search(rb"content-length: (\d+)", received, re.I)[1])
    body = received.split(b"\r\n\r\n", 1)[1]
    while len(body) < length:
        body += client.recv(65536)


def measure(binary, connections, size, had_request):
    """Returns the resident and the counted bytes for each connection."""
    head = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n"
    while len(head) < size:
        head += b"X-%d: " % len(head) + b"x" * min(1000, size - len(head)) + b"\r\n"
    head = head[:size]
    with tempfile.NamedTemporaryFile() as counters, \
            Program(None, binary, "relay", "--http", "127.0.0.1:0", "--workers", "1", "--handshake-timeout", "10m", "--memory", "8GiB",
                    "--counters", counters.name, "--interval", "200ms", ready="listening http ") as relay:
        port = int(re.search(r"listening http .*:(\d+)$", relay.log(), re.M)[1])
        before, clients = stable_resident_bytes(relay), []
        for _ in range(connections):
            client = socket.create_connection(("127.0.0.1", port))
            if had_request:
                client.sendall(REFUSED_REQUEST)
                read_response(client)
            client.sendall(head)
            clients.append(client)
        after = stable_resident_bytes(relay)
        time.sleep(1)
        return (after - before) / connections, counted_bytes(counters.name) / connections


def main():
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--connections", type=int, default=2000, metavar="N", help="connections of one measurement (2000)")
    args = parse_args(parser, connections=200)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    results = Results(args)
    cases = [(had_request, size) for had_request in (False, True) for size in (5, 4000, 63000)]
    for had_request, size in cases * args.rounds:
        with results.catch_errors(f"{size} bytes"):
            resident, counted = measure(args.longhaul, args.connections, size, had_request)
            results.add({"head_bytes": size, "had_request": had_request, "resident_bytes": resident, "counted_bytes": counted})
    heads = ["head, bytes", "had a request", "resident KiB per connection", "counted KiB"]
    return results.finish(table(heads, ((row["head_bytes"], "yes" if row["had_request"] else "no", f"{row['resident_bytes'] / 1024:.1f}",
                                         f"{row['counted_bytes'] / 1024:.1f}") for row in results.rows)))


if __name__ == "__main__":
    sys.exit(main())
