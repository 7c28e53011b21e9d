#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Short connections of one byte, and a flood of SYNs. It runs in bench/interception.toml.

    connections.py serve                      answer connections until it is killed
    connections.py many COUNT SECONDS         open COUNT connections by two processes, for at most SECONDS
    connections.py flood SECONDS              open connections one by one, during a flood from another address

`many` and `flood` print their figures.
"""
import contextlib, json, multiprocessing, os, socket, statistics, struct, sys, time

FLOODER, SERVER, PORT, SILENT = "10.9.1.7", "10.9.2.1", 8080, 9090
PROCESSES = 2


def serve():
    """Receives the client's port number on each connection. Sends one byte: 1 if the connection comes from that port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((SERVER, PORT))
    listener.listen(4096)
    for _ in range(PROCESSES - 1):
        if not os.fork():
            break
    while True:
        connection, (_, port) = listener.accept()
        with connection, contextlib.suppress(OSError, struct.error):
            connection.sendall(b"\1" if struct.unpack("!H", connection.recv(2))[0] == port else b"\0")


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


def connect_for(count, seconds):
    """Opens connections one by one. Returns the outcome and the duration of each."""
    end, outcomes = time.monotonic() + seconds, []
    while len(outcomes) < count and (started := time.monotonic()) < end:
        outcome = connect()
        outcomes.append((outcome, time.monotonic() - started))
    return outcomes


def figures(outcomes, elapsed_s):
    ports = [outcome for outcome, _ in outcomes if outcome is not None]
    times = [duration for outcome, duration in outcomes if outcome is not None] or [0.0]
    return {"connections_per_s": len(ports) / elapsed_s, "completed": len(ports), "failed": len(outcomes) - len(ports),
            "kept_ratio": ports.count(True) / max(len(ports), 1), "median_s": statistics.median(times), "longest_s": max(times)}


def many(count, seconds):
    started = time.monotonic()
    with multiprocessing.Pool(PROCESSES) as pool:
        parts = pool.starmap(connect_for, [(count // PROCESSES, seconds)] * PROCESSES)
    return figures(sum(parts, []), time.monotonic() - started)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return 0xFFFF - (total + (total >> 16) & 0xFFFF)


def send_syns():
    """Sends SYNs from each port of FLOODER to a port that does not respond."""
    source, destination = socket.inet_aton(FLOODER), socket.inet_aton(SERVER)

    def syn(port):
        header = struct.pack("!HHIIBBHHH", port, SILENT, 1, 0, 5 << 4, 2, 65535, 0, 0)
        tcp_checksum = checksum(source + destination + struct.pack("!HH", socket.IPPROTO_TCP, len(header)) + header)
        return header[:16] + struct.pack("!H", tcp_checksum) + header[18:]

    segments = [syn(port) for port in range(1024, 65536)]
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    raw.bind((FLOODER, 0))
    while True:
        for segment in segments:
            raw.sendto(segment, (SERVER, 0))


def flood(seconds):
    flooder = multiprocessing.Process(target=send_syns, daemon=True)
    flooder.start()
    # It prepares its segments first.
    time.sleep(1)
    outcomes = connect_for(sys.maxsize, seconds)
    if not flooder.is_alive():
        sys.exit("the flood ended")
    return figures(outcomes, seconds)


if __name__ == "__main__":
    job, *numbers = sys.argv[1:]
    if job == "serve":
        serve()
    print(json.dumps(many(int(numbers[0]), float(numbers[1])) if job == "many" else flood(float(numbers[0]))))
