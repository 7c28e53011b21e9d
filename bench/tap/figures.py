#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The figures 3, 4, 6 and 7 of the ACK paper, rebuilt on emulated paths.

    bench/tap/figures.py [--rate 400mbit] [--seconds 40] [--ack-pace 4000] [--out DIR]

  growth  200 ms round trip, no loss: data rate and rate by AckDiff, each millisecond (figure 3), and ACKs
          counted as packets (figure 4)
  paced   250 ms, pure ACKs spaced evenly on their way back, --ack-pace of them a second (figures 6 and 7)

One flow of iperf3 with lh_bic (loaded for the duration), recorded segment by segment by `longhaul link --tap`
at the sender's end, analysed by `longhaul tap analyze`. DIR/NAME has report.html and series; what is
printed is a line a second: means, and the 5th and 95th of a hundred milliseconds. Needs root with eBPF,
iperf3 and a release build.
"""
import argparse, csv, json, os, pathlib, signal, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGHAUL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "longhaul"
TAG = f"figures{os.getpid()}"
LEFT, RIGHT = f"{TAG}l", f"{TAG}r"
WINDOWS = "4096 1048576 134217728"


def in_ns(ns, *command):
    return ["ip", "netns", "exec", ns, *map(str, command)]


def until(program, word):
    """Reads what a program says until it is up."""
    out = program.stderr or program.stdout
    while word not in (line := out.readline()):
        assert line, f"{program.args} ended"


def stop(program):
    program.send_signal(signal.SIGINT)
    program.wait()


def record(path, delay, backward, args):
    for ns in (LEFT, RIGHT):
        subprocess.run(["ip", "netns", "add", ns], check=True)
    try:
        for ns in (LEFT, RIGHT):
            subprocess.run(in_ns(ns, "sysctl", "-q", "-w", f"net.ipv4.tcp_rmem={WINDOWS}", f"net.ipv4.tcp_wmem={WINDOWS}"),
                           check=True)
        link = [LONGHAUL, "link", "--name", TAG, "--left", f"{LEFT}:wan0:10.80.2.1/30", "--tap", path,
                "--right", f"{RIGHT}:wan0:10.80.2.2/30", "--delay", delay, "--rate", args.rate, "--queue", "1bdp", *backward]
        link = subprocess.Popen(list(map(str, link)), text=True, stderr=subprocess.PIPE)
        until(link, "ready")
        server = subprocess.Popen(in_ns(RIGHT, "iperf3", "-s", "--forceflush"), text=True, stdout=subprocess.PIPE)
        until(server, "listening")
        subprocess.run(in_ns(LEFT, "iperf3", "-c", "10.80.2.2", "-t", args.seconds, "-C", "lh_bic"), check=True,
                       stdout=subprocess.DEVNULL)
        time.sleep(1)
        stop(server)
        stop(link)
    finally:
        for ns in (LEFT, RIGHT):
            subprocess.run(["ip", "netns", "delete", ns], check=True)


def hundredths(values):
    ordered = sorted(values)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return at(0.05), at(0.95)


def table(place, flow):
    """A line a second from the bins of a millisecond; milliseconds without anything are zeros."""
    seconds = {}
    with open(place / "series-1ms.csv") as file:
        for row in csv.DictReader(file):
            if int(row["flow"]) == flow["number"] and row["direction"] == "upload":
                since = int(row["time_ns"]) - flow["first_ns"]
                seconds.setdefault(since // 10**9, []).append(row)
    print("  second   data Mbit/s (5 %–95 % of 1 ms)   by AckDiff Mbit/s        ACKs a ms")
    for second, rows in sorted(seconds.items()):
        def spread(column, scale):
            values = [int(row[column] or 0) * scale for row in rows] + [0] * (1000 - len(rows))
            low, high = hundredths(values)
            return f"{statistics.fmean(values):7.1f} ({low:.0f}–{high:.0f})"
        print(f"  {second:6}   {spread('data_bytes', 0.008):28}   {spread('acked_bytes', 0.008):22}   {spread('acks', 1)}")


def cell(name, delay, backward, args):
    place = args.out / name
    trace = args.out / f"{name}.pcapng"
    record(trace, delay, backward, args)
    subprocess.run([LONGHAUL, "tap", "analyze", trace, "-o", place, "--csv", "--flows", "2"], check=True,
                   stdout=subprocess.DEVNULL)
    result = json.loads((place / "result.json").read_text())
    sender = next(at for at, seen in enumerate(result["vantages"]) if seen["name"] == "left")
    flow = next(flow for flow in result["flows"] if flow["vantage"] == sender)
    print(f"\n{name}: {place / 'report.html'}")
    table(place, flow)
    for phase in flow["upload"]["phases"]:
        begin, end = ((phase[edge] - flow["first_ns"]) / 1e9 for edge in ("from_ns", "to_ns"))
        print(f"  {phase['kind']:9} {begin:6.2f}–{end:6.2f} s: data {phase['data_bps'] / 1e6:.0f} Mbit/s, "
              f"ACKs {phase['acks_per_s']:.0f}/s, {phase['packets_per_ack']:.2f} packets an ACK")
    print(f"  {flow['upload']['verdict']}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rate", default="400mbit")
    options.add_argument("--seconds", type=int, default=40)
    options.add_argument("--ack-pace", type=int, default=4_000)
    options.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench" / "tap-figures")
    args = options.parse_args()
    if not LONGHAUL.exists():
        sys.exit(f"missing: {LONGHAUL}")
    args.out.mkdir(parents=True, exist_ok=True)
    subprocess.run([LONGHAUL, "cc", "load", "bic", "--param", "ack_shift=3"], check=True)
    try:
        cell("growth", "100ms", [], args)
        cell("paced", "125ms", ["--backward", f"ack-pace={args.ack_pace}"], args)
    finally:
        subprocess.run([LONGHAUL, "cc", "unload", "bic"], check=True)


if __name__ == "__main__":
    main()
