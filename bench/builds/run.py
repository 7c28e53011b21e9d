#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the speed of two builds of longhaul in one run.

    bench/builds/run.py --beside PATH [--longhaul PATH] [--only relay,link,copy,analyze,simulate] [--rounds 9]

  relay     one iperf3 flow through a relay on loopback, Gbit/s
  link      one iperf3 flow over a link without shaping, Gbit/s
  copy      files from one directory in memory to another, MB/s
  analyze   `tap analyze` of a capture of a transfer of 1 GB, runs a second
  simulate  `cc simulate` of an hour at 1 Gbit/s and 100 ms, simulated seconds a second

The builds alternate, and each round begins with the other one. The figure is the ratio of the two medians, with the minimum
and maximum of the ratios of single rounds. A ratio above 1 means that --longhaul is faster. Needs iperf3 and root.
"""
import os, pathlib, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import (Program, Results, argument_parser, comma_separated, emulated_link, group_by, hosts, iperf3, median_range, parse_args,
                     run_command, run_in_namespaces, skip_benchmark, table)

LEFT, RIGHT = ("left", "10.9.0.1/30"), ("right", "10.9.0.2/30")
FILES, FILE_BYTES = 40, 25 << 20


def relay(build, args, directory):
    with hosts("relay"), Program("relay", "iperf3", "--server", "--one-off", ready=5201), \
            Program("relay", build, "relay", "--forward", "127.0.0.1:5300=127.0.0.1:5201", ready=5300):
        end = iperf3("relay", "--client", "127.0.0.1", "--port", 5300, "--time", args.seconds, "--omit", 1)
        return end["sum_received"]["bits_per_second"] / 1e9


def link(build, args, directory, *flags):
    with hosts("left", "right"), emulated_link(build, LEFT, RIGHT, *flags), \
            Program("right", "iperf3", "--server", "--one-off", ready=5201):
        end = iperf3("left", "--client", "10.9.0.2", "--time", args.seconds, "--omit", 1)
        return end["sum_received"]["bits_per_second"] / 1e9


def seconds(*command):
    started = time.monotonic()
    run_command(*command)
    return time.monotonic() - started


def copy(build, args, directory):
    source = directory / "source"
    if not source.exists():
        source.mkdir()
        for number in range(FILES):
            (source / str(number)).write_bytes(os.urandom(FILE_BYTES))
    elapsed_s = seconds(build, "copy", source, directory / "target")
    run_command("rm", "-r", directory / "target")
    return FILES * FILE_BYTES / 1e6 / elapsed_s


def analyze(build, args, directory):
    trace = directory / "trace.pcapng"
    if not trace.exists():
        with hosts("left", "right"), \
                emulated_link(args.longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%", "--capture", trace), \
                Program("right", "iperf3", "--server", "--one-off", ready=5201):
            iperf3("left", "--client", "10.9.0.2", "--bytes", "1000M")
    elapsed_s = seconds(build, "tap", "analyze", trace, "-o", directory / "analysis")
    run_command("rm", "-r", directory / "analysis")
    return 1 / elapsed_s


def simulate(build, args, directory):
    minutes = 60
    return minutes * 60 / seconds(build, "cc", "simulate", "--cc", "bic", "--rate", "1gbit", "--rtt", "100ms", "--duration", f"{minutes}min", "--json")


CASES = {"relay": (relay, "Gbit/s"), "link": (link, "Gbit/s"), "copy": (copy, "MB/s"), "analyze": (analyze, "runs a second"),
         "simulate": (simulate, "times real time")}


def ratio(rows):
    """Median rate of --longhaul over that of --beside; None if one is missing."""
    measured, beside = ([row["rate"] for row in rows if row["build"] == build] for build in ("longhaul", "beside"))
    return statistics.median(measured) / statistics.median(beside) if measured and beside else None


def line(case, rows):
    round_ratios = [value for value in (ratio(own) for _, own in group_by(rows, "round")) if value]
    overall = ratio(rows)
    text = f"{overall:.3f} ({min(round_ratios):.3f}–{max(round_ratios):.3f})" if overall else "–"
    builds = (median_range([row for row in rows if row["build"] == build], "rate", ".4g") for build in ("longhaul", "beside"))
    return [f"{case}, {CASES[case][1]}", *builds, text]


def main():
    parser = argument_parser(__doc__, rounds=9)
    parser.add_argument("--beside", type=pathlib.Path, default=os.environ.get("BESIDE"), metavar="PATH", help="the other build (BESIDE)")
    parser.add_argument("--only", type=comma_separated, default=list(CASES), metavar="NAME,...")
    parser.add_argument("--seconds", type=int, default=5)
    args = parse_args(parser, required=["iperf3"], seconds=1)
    if not args.beside:
        skip_benchmark("no other build: give --beside PATH, or BESIDE=PATH in the environment")
    if not os.access(args.beside, os.X_OK):
        parser.error(f"--beside {args.beside}: no such program")
    if unknown := set(args.only) - CASES.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: no such case; the cases are {', '.join(CASES)}")
    builds = {"longhaul": args.longhaul, "beside": args.beside.resolve()}
    run_in_namespaces()
    results = Results(args, ["iperf3"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for round_ in range(args.rounds):
            for case in args.only:
                for build in sorted(builds, reverse=round_ % 2 == 0):
                    with results.catch_errors(f"{case} by {build}"):
                        rate = CASES[case][0](builds[build], args, pathlib.Path(directory))
                        results.add({"case": case, "build": build, "round": round_, "rate": rate})
    return results.finish(table(["case", "longhaul", "beside", "ratio"], (line(case, rows) for (case,), rows in group_by(results.rows, "case"))))


if __name__ == "__main__":
    sys.exit(main())
