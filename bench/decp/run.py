#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Parallel streams with and without longhaul decp, on the paper's path scaled down.

    bench/decp/run.py [--streams 16,32] [--control reno,cubic,lh_trc] [--modes none,lift,hold,refill]
                      [--rate 1gbit] [--delay 175ms] [--queue 1bdp] [--seconds 120] [--rounds 1] [--realtime]

iperf3 -P over `longhaul link` between two namespaces; `longhaul decp` beside it, which iperf3 knows
nothing of. A control of longhaul's is loaded for its runs; lh_trc:share is TRC-TCP whose gap is that of
an equal share of the link. Keeps besides, of each last run, what decp saw (DIR/looks-….jsonl). Utilisation is payload
received over what the link's rate carries of it, of the whole run and of its second half; Jain's index and
slowest/fastest are of the streams over the whole run. Needs root and iperf3; LONGHAUL_LINK names another binary
that makes the link.
"""
import contextlib, json, os, pathlib, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, iperf3, load_control, run_in_namespaces
from results import PAYLOAD, Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.77.0.1/30"), ("right", "10.77.0.2/30")
PORT = 5201
MODES = {"none": None, "lift": [], "hold": ["--hold"], "refill": ["--refill"]}
BUFFERS = "4096 131072 67108864"
SYSCTLS = [f"net.ipv4.tcp_rmem={BUFFERS}", f"net.ipv4.tcp_wmem={BUFFERS}", "net.ipv4.tcp_no_metrics_save=1"]


def bits(rate):
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
    gap = [f"rate_mbit={int(bits(args.rate) * PAYLOAD / streams / 1e6)}"] * (share == "share")
    with tempfile.TemporaryDirectory() as directory, load_control(args.longhaul, name, *gap):
        counters = pathlib.Path(directory) / "link.jsonl"
        with testbed(args, counters), contextlib.ExitStack() as stack:
            decp = None
            if MODES[mode] is not None:
                decp = stack.enter_context(Program(None, args.longhaul, "decp", "--netns", LEFT[0], "--filter", f"dport {PORT}",
                                                   "--json", *MODES[mode]))
            began = time.monotonic()
            end = iperf3(LEFT[0], "--client", "10.77.0.2", "--port", PORT, "--parallel", streams, "--time", args.seconds,
                         "--congestion", name, timeout=args.seconds + 60)
            halves = {"utilisation_second_half": second_half(args, counters, time.monotonic() - began - args.seconds)}
            row = {"streams": streams, "control": control, "mode": mode, **figures(args, end), **halves}
            if decp:
                decp.terminate()
                looks = decp.read(decp.out)
                (args.out / f"looks-{streams}-{control}-{mode}.jsonl").write_text(looks)
                row["decp"] = json.loads(looks.splitlines()[-1])["summary"]
            return row


def second_half(args, counters, ago_s):
    """Utilisation of the half that ended some seconds ago, by the link's own counters."""
    lines = map(json.loads, counters.read_text().splitlines())
    counts = [(one["seconds"], one["delivered_bytes"]) for one in lines if one.get("direction") == "forward" and "delivered_bytes" in one]
    end = counts[-1][0] - ago_s
    half = [count for count in counts if end - args.seconds / 2 <= count[0] <= end]
    return (half[-1][1] - half[0][1]) * 8 / (half[-1][0] - half[0][0]) / bits(args.rate)


def figures(args, end):
    rates = [stream["receiver"]["bits_per_second"] for stream in end["streams"]]
    total = end["sum_received"]["bits_per_second"]
    return {"goodput_bps": total, "utilisation": total / bits(args.rate) / PAYLOAD,
            "jain": sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates),
            "slowest_to_fastest": min(rates) / max(rates), "retransmits": end["sum_sent"]["retransmits"]}


def main():
    parser = argument_parser(__doc__, rounds=1)
    for flag, value in (("streams", ["16", "32"]), ("control", ["reno", "cubic"]), ("modes", list(MODES))):
        parser.add_argument(f"--{flag}", type=comma_separated, default=value)
    for flag, value in (("rate", "1gbit"), ("delay", "175ms"), ("queue", "1bdp")):
        parser.add_argument(f"--{flag}", default=value)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--realtime", action="store_true", help="the link goes before whatever else this machine does")
    args = parse_args(parser, required=["iperf3"], streams=["4"], seconds=4, rate="100mbit", delay="10ms")
    run_in_namespaces()
    results = Results(args, ["iperf3"])
    cells = [(int(streams), control, mode) for streams in args.streams for control in args.control for mode in args.modes]
    for cell in cells * args.rounds:
        with results.catch_errors(" ".join(map(str, cell))):
            results.add(measure(args, *cell))
    shown = [("utilisation", ".3f"), ("utilisation_second_half", ".3f"), ("jain", ".3f"), ("slowest_to_fastest", ".3f"),
             ("retransmits", ".0f"), ("load", ".1f")]
    return results.finish(table(["streams, control, mode", "utilisation", "second half", "Jain", "slowest/fastest", "retransmitted", "load"],
                               ((" ".join(map(str, key)), *(median_range(own, *one) for one in shown))
                                for key, own in group_by(results.rows, "streams", "control", "mode"))))


if __name__ == "__main__":
    sys.exit(main())
