#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory of a relay for slow request heads: prints its bytes for each connection. It runs in bench/heads.toml.

    slow_heads.py RELAY CONNECTIONS BYTES new|used COUNTERS

It opens connections to `longhaul relay --http` at port 8080, whose process is RELAY, and sends unfinished heads of BYTES on
them. `used` connections had a request before. The figures are the growth of the process for each connection, without kernel
sockets, and the relay's own count (memory_bytes in COUNTERS).
"""
import json, re, resource, socket, sys, time

PORT = 8080
REFUSED_REQUEST = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n"


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def stable_resident_bytes(pid):
    """Returns the resident size once it has not changed for a second."""
    size, changed_at = resident_bytes(pid), time.monotonic()
    while time.monotonic() - changed_at < 1:
        time.sleep(0.1)
        now = resident_bytes(pid)
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


def main():
    pid, count, size, kind, counters = sys.argv[1:]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    head = REFUSED_REQUEST[:-2]
    while len(head) < int(size):
        head += b"X-%d: " % len(head) + b"x" * min(1000, int(size) - len(head)) + b"\r\n"
    before, clients = stable_resident_bytes(pid), []
    for _ in range(int(count)):
        client = socket.create_connection(("127.0.0.1", PORT))
        if kind == "used":
            client.sendall(REFUSED_REQUEST)
            read_response(client)
        client.sendall(head[:int(size)])
        clients.append(client)
    resident = stable_resident_bytes(pid) - before
    time.sleep(1)
    print(json.dumps({"resident_bytes": resident / len(clients), "counted_bytes": counted_bytes(counters) / len(clients)}))


if __name__ == "__main__":
    main()
