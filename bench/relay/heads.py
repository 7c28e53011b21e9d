#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory that slow request heads cost a relay: resident bytes a connection.

Starts `BINARY relay --http` and opens connections whose heads are not finished: of a few bytes, of 63 kB,
and the same again on connections that had a request before. Prints for each what the process has grown by
for one connection, kernel sockets not counted, and what the relay itself counts (memory_bytes).

    bench/relay/heads.py [BINARY] [--connections 2000]
"""

import argparse
import json
import re
import socket
import subprocess
import tempfile
import threading
import time

REFUSED = b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n"


def start(binary, counters):
    command = [binary, "relay", "--http", "127.0.0.1:0", "--workers", "1", "--handshake-timeout", "10m"]
    command += ["--counters", counters, "--interval", "200ms", "--memory", "8GiB"]
    relay = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in relay.stderr:
        if line.startswith("listening http "):
            threading.Thread(target=relay.stderr.read, daemon=True).start()
            return relay, int(line.rsplit(":", 1)[1])
    raise SystemExit("the relay did not start")


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
    with tempfile.NamedTemporaryFile() as counters:
        relay, port = start(binary, counters.name)
        try:
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
        finally:
            relay.kill()
            relay.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default="target/release/longhaul")
    parser.add_argument("--connections", type=int, default=2000)
    args = parser.parse_args()
    print(f"{'head':>8}  {'had a request':13}  {'resident':>10}  {'counted':>10}  a connection")
    for had_request in (False, True):
        for size in (5, 4000, 63000):
            resident_bytes, counted_bytes = measure(args.binary, args.connections, size, had_request)
            print(f"{size:>8}  {'yes' if had_request else 'no':13}  {resident_bytes / 1024:>6.1f} KiB  "
                  f"{counted_bytes / 1024:>6.1f} KiB", flush=True)


main()
