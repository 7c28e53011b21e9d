#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Parallel streams with and without longhaul decp, on the paper's path scaled down.

    bench/decp/run.py [--streams 16,32] [--control reno,cubic,lh_trc] [--modes none,lift,hold,refill]
                      [--rate 1gbit] [--delay 175ms] [--queue 1bdp] [--seconds 120] [--rounds 1] [--realtime]

iperf3 -P runs over `longhaul link` between two namespaces. `longhaul decp` runs beside it and needs no help from iperf3.
A congestion control of longhaul's is loaded for its runs. lh_trc:share is TRC-TCP with the inter-packet gap of an equal
share of the link. The samples of decp are kept for the last run of each case (DIR/samples-….jsonl). Utilisation is the
payload received, over the payload that the link can carry: of the whole run, and of its second half. Jain's index and
slowest/fastest compare the streams over the whole run. Needs root and iperf3. LONGHAUL_LINK names another binary for the
link.
"""
import contextlib, json, os, pathlib, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, iperf3, load_control, run_in_namespaces
from results import PAYLOAD, Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.77.0.1/30"), ("right", "10.77.0.2/30")
PORT = 5201
MODES = {"none": None, "lift": [], "hold": ["--keep-caps"], "refill": ["--slow-start"]}
BUFFERS = "4096 131072 67108864"
SYSCTLS = [f"net.ipv4.tcp_rmem={BUFFERS}", f"net.ipv4.tcp_wmem={BUFFERS}", "net.ipv4.tcp_no_metrics_save=1"]


def bits_per_second(rate):
    units = {"mbit": 1e6, "gbit": 1e9}
    return float(rate[:-4]) * units[rate[-4:]]


@contextlib.contextmanager
def testbed(args, counters):
    with hosts(LEFT[0], RIGHT[0], sysctls=SYSCTLS), \
            emulated_link(os.environ.get("LONGHAUL_LINK", args.longhaul), LEFT, RIGHT, "--delay", args.delay, "--rate", args.rate,
                 "--queue", args.queue, "--counters", counters, *["--realtime"] * args.realtime), \
            Program(RIGHT[0], "iperf3", "--server", "--port", PORT, ready=PORT):
        yield


def measure(args, streams, control, mode):
    name, _, share = control.partition(":")
    gap = [f"rate_mbit={int(bits_per_second(args.rate) * PAYLOAD / streams / 1e6)}"] * (share == "share")
    with tempfile.TemporaryDirectory() as directory, load_control(args.longhaul, name, *gap):
        counters = pathlib.Path(directory) / "link.jsonl"
        with testbed(args, counters), contextlib.ExitStack() as stack:
            decp = None
            if MODES[mode] is not None:
                decp = stack.enter_context(Program(None, args.longhaul, "decp", "--netns", LEFT[0], "--filter", f"dport {PORT}",
                                                   "--json", *MODES[mode]))
            started = time.monotonic()
            end = iperf3(LEFT[0], "--client", "10.77.0.2", "--port", PORT, "--parallel", streams, "--time", args.seconds,
                         "--congestion", name, timeout=args.seconds + 60)
            second_half = {"utilisation_second_half": second_half_utilisation(args, counters, time.monotonic() - started - args.seconds)}
            row = {"streams": streams, "control": control, "mode": mode, **flow_metrics(args, end), **second_half}
            if decp:
                decp.terminate()
                samples = decp.read(decp.out)
                (args.out / f"samples-{streams}-{control}-{mode}.jsonl").write_text(samples)
                row["decp"] = json.loads(samples.splitlines()[-1])["summary"]
            return row


def second_half_utilisation(args, counters, ended_s):
    """Utilisation in the second half of a run that ended `ended_s` seconds ago, by the link's counters."""
    lines = map(json.loads, counters.read_text().splitlines())
    counts = [(line["seconds"], line["delivered_bytes"]) for line in lines if line.get("direction") == "forward" and "delivered_bytes" in line]
    end = counts[-1][0] - ended_s
    half = [count for count in counts if end - args.seconds / 2 <= count[0] <= end]
    return (half[-1][1] - half[0][1]) * 8 / (half[-1][0] - half[0][0]) / bits_per_second(args.rate)


def flow_metrics(args, end):
    rates = [stream["receiver"]["bits_per_second"] for stream in end["streams"]]
    total = end["sum_received"]["bits_per_second"]
    return {"goodput_bps": total, "utilisation": total / bits_per_second(args.rate) / PAYLOAD,
            "jain": sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates),
            "slowest_to_fastest": min(rates) / max(rates), "retransmits": end["sum_sent"]["retransmits"]}


def main():
    parser = argument_parser(__doc__, rounds=1)
    for flag, value in (("streams", ["16", "32"]), ("control", ["reno", "cubic"]), ("modes", list(MODES))):
        parser.add_argument(f"--{flag}", type=comma_separated, default=value)
    for flag, value in (("rate", "1gbit"), ("delay", "175ms"), ("queue", "1bdp")):
        parser.add_argument(f"--{flag}", default=value)
    parser.add_argument("--seconds", type=int, default=120, help="length of a run (120)")
    parser.add_argument("--realtime", action="store_true", help="run the link with real-time priority")
    args = parse_args(parser, required=["iperf3"], streams=["4"], seconds=4, rate="100mbit", delay="10ms")
    run_in_namespaces()
    results = Results(args, ["iperf3"])
    cases = [(int(streams), control, mode) for streams in args.streams for control in args.control for mode in args.modes]
    for case in cases * args.rounds:
        with results.catch_errors(" ".join(map(str, case))):
            results.add(measure(args, *case))
    columns = [("utilisation", ".3f"), ("utilisation_second_half", ".3f"), ("jain", ".3f"), ("slowest_to_fastest", ".3f"),
             ("retransmits", ".0f"), ("load", ".1f")]
    return results.finish(table(["streams, control, mode", "utilisation", "second half", "Jain", "slowest/fastest", "retransmitted", "load"],
                               ((" ".join(map(str, key)), *(median_range(own, *column) for column in columns))
                                for key, own in group_by(results.rows, "streams", "control", "mode"))))


if __name__ == "__main__":
    sys.exit(main())
