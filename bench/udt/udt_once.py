#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs one UDT connection from memory to memory, and prints the figures of its second half. It runs in bench/udt.toml.

    udt_once.py CONTROL|libudt --longhaul PATH --to HOST:ADDRESS --window PACKETS [--seconds 20]

The receiver runs on HOST. libudt-peer, which bench/udt/libudt.cpp is the source of, must be on PATH. CPU time is user and
system time of all threads, as the scheduler counts it. The kernel charges soft interrupts to the process that they
interrupt, or to none.
"""
import argparse, json, pathlib, signal, subprocess, sys, tempfile, time

PORT = 9000


def commands(args, address):
    """Returns the commands of the receiver and the sender, and what the receiver prints when it is ready."""
    if args.program == "libudt":
        return (["libudt-peer", "receive", PORT, args.window], ["libudt-peer", "send", address, PORT, args.window], "ready")
    options = ["--window", args.window, "--cc", args.program]
    receive = [args.longhaul, "udt", "bench", "--listen", f"{address}:{PORT}", *options]
    send = [args.longhaul, "udt", "bench", f"{address}:{PORT}", "--time", f"{args.seconds}s", "--interval", "100ms", "--json", *options]
    return receive, send, "serving"


class Process(subprocess.Popen):
    """A process whose output is kept."""

    def __init__(self, *command):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        super().__init__(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err)

    def printed(self, *files):
        for file in files:
            file.seek(0)
        return "".join(file.read().decode() for file in files)

    def cpu_s(self):
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def wait_until_ready(server, words):
    for _ in range(500):
        if words in server.printed(server.out, server.err):
            return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    sys.exit(f"the receiver did not start: {server.printed(server.out, server.err)[-400:]}")


def sample_cpu(client, server, seconds):
    """Samples the time and the CPU times of both processes, in the middle and at the end of a run."""
    started, samples = time.time(), []
    for sample_s in (seconds / 2, seconds):
        time.sleep(max(0.0, started + sample_s - time.time()))
        if client.poll() is not None:
            sys.exit(f"the sender ended: {client.printed(client.out, client.err)[-400:]}")
        samples.append((time.time(), client.cpu_s(), server.cpu_s()))
    return samples


def longhaul_points(client):
    """Returns (time, bytes received so far) pairs by the report of both ends."""
    client.wait(120)
    receiver, bytes_ = json.loads(client.printed(client.out))["receiver"], 0
    points = [(receiver["started_at_s"], 0)]
    for number, interval in enumerate(receiver["intervals"], 1):
        bytes_ += interval["bytes"]
        points.append((receiver["started_at_s"] + number * 0.1, bytes_))
    return points


def libudt_points(client, server):
    client.kill()
    server.send_signal(signal.SIGTERM)
    server.wait()
    return [(float(at), int(bytes_)) for at, bytes_ in (line.split() for line in server.printed(server.out).splitlines())]


def bytes_at(points, time_s):
    """Bytes received until then, by linear interpolation."""
    before = max((point for point in points if point[0] <= time_s), default=(0, 0))
    after = min((point for point in points if point[0] > time_s), default=before)
    if after[0] <= before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (time_s - before[0]) / (after[0] - before[0])


def figures(points, samples):
    (begin, *cpu_before), (end, *cpu_after) = samples
    bytes_ = max(bytes_at(points, end) - bytes_at(points, begin), 1)
    sender, receiver = (after - before for before, after in zip(cpu_before, cpu_after))
    return {"rate_bps": bytes_ * 8 / (end - begin), "sender_per_gb_s": sender / bytes_ * 1e9, "receiver_per_gb_s": receiver / bytes_ * 1e9,
            "megabytes_per_cpu_second": bytes_ / 1e6 / (sender + receiver)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="libudt, or a rate control of longhaul")
    parser.add_argument("--longhaul", required=True, metavar="PATH")
    parser.add_argument("--to", required=True, metavar="HOST:ADDRESS")
    parser.add_argument("--window", required=True, metavar="PACKETS")
    parser.add_argument("--seconds", type=float, default=20, help="length of the run (20)")
    args = parser.parse_args()
    host, address = args.to.split(":")
    receive, send, ready = commands(args, address)
    server = Process("ip", "netns", "exec", host, *receive)
    wait_until_ready(server, ready)
    client = Process(*send)
    samples = sample_cpu(client, server, args.seconds)
    points = libudt_points(client, server) if args.program == "libudt" else longhaul_points(client)
    print(json.dumps(figures(points, samples)))


if __name__ == "__main__":
    main()
