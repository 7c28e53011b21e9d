# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory that slow request heads cost a relay: resident bytes a connection.

`longhaul relay --http` gets connections whose heads are not finished: of a few bytes, of 63 kB, and the same again on
connections that had a request before. For each: what the process has grown by for one connection, kernel sockets not
counted, and what the relay itself counts (memory_bytes).
"""
import json, re, socket, tempfile, time

import results
from namespaces import Program

REFUSED = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n"


def resident(relay):
    with open(f"/proc/{relay.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def settled(relay):
    """The resident size once it has not changed for a second."""
    before, since = resident(relay), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.1)
        now = resident(relay)
        if now != before:
            before, since = now, time.monotonic()
    return before


def counted(path):
    with open(path) as file:
        lines = [line for line in file.read().splitlines() if '"relay"' in line]
    return json.loads(lines[-1])["memory_bytes"]


def answer(client):
    """Reads the answer to a request that is refused."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += client.recv(65536)
    length = int(re.search(rb"content-length: (\d+)", heard, re.I)[1])
    body = heard.split(b"\r\n\r\n", 1)[1]
    while len(body) < length:
        body += client.recv(65536)


def measure(binary, connections, size, had_request):
    head = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n"
    while len(head) < size:
        head += b"X-%d: " % len(head) + b"x" * min(1000, size - len(head)) + b"\r\n"
    head = head[:size]
    with tempfile.NamedTemporaryFile() as counters, \
            Program(None, binary, "relay", "--http", "127.0.0.1:0", "--workers", "1", "--handshake-timeout", "10m", "--memory", "8GiB",
                    "--counters", counters.name, "--interval", "200ms", ready="listening http ") as relay:
        port = int(re.search(r"listening http .*:(\d+)$", relay.log(), re.M)[1])
        before, clients = settled(relay), []
        for _ in range(connections):
            client = socket.create_connection(("127.0.0.1", port))
            if had_request:
                client.sendall(REFUSED)
                answer(client)
            client.sendall(head)
            clients.append(client)
        after = settled(relay)
        time.sleep(1)
        return (after - before) / connections, counted(counters.name) / connections


def rows(longhaul, connections):
    for had_request in (False, True):
        for size in (5, 4000, 63000):
            resident_bytes, counted_bytes = measure(longhaul, connections, size, had_request)
            yield {"head": size, "had_request": had_request, "resident_b": resident_bytes, "counted_b": counted_bytes}


def table(mine):
    yield ""
    yield from results.table(["slow heads", "had a request", "resident KiB a connection", "counted"],
                             ((row["head"], "yes" if row["had_request"] else "no", f"{row['resident_b'] / 1024:.1f}",
                               f"{row['counted_b'] / 1024:.1f}") for row in mine))
