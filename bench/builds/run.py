#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two builds of longhaul beside each other in one run: has a change cost speed?

    bench/builds/run.py --beside PATH [--longhaul PATH] [--only relay,link,copy,analyze,simulate] [--rounds 9]

  relay     one iperf3 flow through a relay on loopback, Gbit/s
  link      one iperf3 flow over a link without shaping, Gbit/s
  copy      files in memory to a directory in memory, MB/s
  analyze   `tap analyze` of a capture of a gigabyte, times a second
  simulate  `cc simulate`: an hour of 1 Gbit/s over 100 ms, simulated seconds a second

The builds take turns, and which is first changes from round to round. The figure is the ratio of the two medians (more than 1: --longhaul is
faster), with the ratios of the rounds from least to most. Needs iperf3, no root.
"""
import os, pathlib, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, iperf3, run_command, run_in_namespaces, skip_benchmark
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.9.0.1/30"), ("right", "10.9.0.2/30")
FILES, FILE_BYTES = 40, 25 << 20


def relay(build, args, directory):
    with hosts("here"), Program("here", "iperf3", "--server", "--one-off", ready=5201), \
            Program("here", build, "relay", "--forward", "127.0.0.1:5300=127.0.0.1:5201", ready=5300):
        end = iperf3("here", "--client", "127.0.0.1", "--port", 5300, "--time", args.seconds, "--omit", 1)
        return end["sum_received"]["bits_per_second"] / 1e9


def over_link(build, args, directory, *flags):
    with hosts("left", "right"), emulated_link(build, LEFT, RIGHT, *flags), \
            Program("right", "iperf3", "--server", "--one-off", ready=5201):
        end = iperf3("left", "--client", "10.9.0.2", "--time", args.seconds, "--omit", 1)
        return end["sum_received"]["bits_per_second"] / 1e9


def seconds(*command):
    began = time.monotonic()
    run_command(*command)
    return time.monotonic() - began


def copy(build, args, directory):
    source = directory / "source"
    if not source.exists():
        source.mkdir()
        for number in range(FILES):
            (source / str(number)).write_bytes(os.urandom(FILE_BYTES))
    took = seconds(build, "copy", source, directory / "target")
    run_command("rm", "-r", directory / "target")
    return FILES * FILE_BYTES / 1e6 / took


def analyze(build, args, directory):
    trace = directory / "trace.pcapng"
    if not trace.exists():
        with hosts("left", "right"), \
                emulated_link(args.longhaul, LEFT, RIGHT, "--no-offload", "--delay", "10ms", "--rate", "1gbit", "--loss", "0.01%", "--tap", trace), \
                Program("right", "iperf3", "--server", "--one-off", ready=5201):
            iperf3("left", "--client", "10.9.0.2", "--bytes", "1000M")
    took = seconds(build, "tap", "analyze", trace, "-o", directory / "analysis")
    run_command("rm", "-r", directory / "analysis")
    return 1 / took


def simulate(build, args, directory):
    minutes = 60
    return minutes * 60 / seconds(build, "cc", "simulate", "--cc", "bic", "--rate", "1gbit", "--rtt", "100ms", "--duration", f"{minutes}min", "--json")


CASES = {"relay": (relay, "Gbit/s"), "link": (over_link, "Gbit/s"), "copy": (copy, "MB/s"), "analyze": (analyze, "a second"),
         "simulate": (simulate, "times real time")}


def ratio(rows, of=statistics.median):
    own, other = ([row["figure"] for row in rows if row["build"] == build] for build in ("longhaul", "beside"))
    return of(own) / of(other) if own and other else None


def line(case, rows):
    by_round = [one for one in (ratio(own) for _, own in group_by(rows, "round")) if one]
    whole = ratio(rows)
    shown = f"{whole:.3f} ({min(by_round):.3f}–{max(by_round):.3f})" if whole else "–"
    builds = (median_range([row for row in rows if row["build"] == build], "figure", ".4g") for build in ("longhaul", "beside"))
    return [f"{case}, {CASES[case][1]}", *builds, shown]


def main():
    parser = argument_parser(__doc__, rounds=9)
    parser.add_argument("--beside", type=pathlib.Path, default=os.environ.get("BESIDE"), metavar="PATH")
    parser.add_argument("--only", type=comma_separated, default=list(CASES), metavar="NAME,...")
    parser.add_argument("--seconds", type=int, default=5)
    args = parse_args(parser, required=["iperf3"], seconds=1)
    if not args.beside:
        skip_benchmark("no other build: give --beside PATH, or BESIDE=PATH in the environment")
    if not os.access(args.beside, os.X_OK):
        parser.error(f"--beside {args.beside}: no program")
    if unknown := set(args.only) - CASES.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(CASES)}")
    builds = {"longhaul": args.longhaul, "beside": args.beside.resolve()}
    run_in_namespaces(rootless=True)
    results = Results(args, ["iperf3"], beside=str(args.beside))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for turn in range(args.rounds):
            for case in args.only:
                for build in sorted(builds, reverse=turn % 2 == 0):
                    with results.catch_errors(f"{case} by {build}"):
                        figure = CASES[case][0](builds[build], args, pathlib.Path(directory))
                        results.add({"case": case, "build": build, "round": turn, "figure": figure})
    return results.finish(table(["case", "longhaul", "beside", "ratio"], (line(case, rows) for (case,), rows in group_by(results.rows, "case"))))


if __name__ == "__main__":
    sys.exit(main())
