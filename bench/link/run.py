#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Throughput of the emulated link on this machine: one iperf3 flow between two namespaces over each of these in turn.

    bench/link/run.py [--seconds 5] [--rounds 5] [--rattan PATH]

  veth      a plain veth pair, without user space
  copy      a loop that copies packets between two TUN devices: the upper bound for any emulator in user space
  link      longhaul link without shaping, which schedules every segment
  capture   the same, with every segment captured at both ends, into memory
  rattan    Rattan without cells, if it is on PATH or given by --rattan or RATTAN

The first second of a flow does not count. Needs iperf3, no root. copy needs the example tun_copy in the release build.
"""
import contextlib, json, os, pathlib, statistics, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, emulated_link, hosts, iperf3, run_command, run_in_namespaces
from results import RELEASE, Results, argument_parser, group_by, median_range, parse_args, table

LEFT, RIGHT = ("left", "10.9.0.1/30"), ("right", "10.9.0.2/30")
RATTAN = """[env]
mode = "Isolated"
left_veth_count = 1
right_veth_count = 1
[cells]
[links]
left = "right"
right = "left"
[resource]
cpu = [0]
[general]
[commands]
shell = "Default"
"""


@contextlib.contextmanager
def testbed(transport, args, directory):
    """Creates the two hosts, joined by this transport, for the block."""
    with hosts("left", "right"):
        if transport == "veth":
            add_veth(LEFT, RIGHT)
            yield
        elif transport == "copy":
            with Program(None, args.copy, "left", "10.9.0.1", "right", "10.9.0.2", ready="^ready"):
                yield
        else:
            trace = directory / "capture.pcapng"
            with emulated_link(args.longhaul, LEFT, RIGHT, *["--capture", trace] * (transport == "capture")) as program:
                yield
                program.terminate()
                # Show how many records are missing: a capture that drops packets looks cheap.
                sys.stderr.writelines(f"  {line}\n" for line in program.log().splitlines() if line.startswith("capture "))
            trace.unlink(missing_ok=True)


def goodput_mbit_s(end):
    return end["sum_received"]["bits_per_second"] / 1e6


def measure(transport, args, directory):
    if transport == "rattan":
        return measure_rattan(args, directory)
    with testbed(transport, args, directory), Program("right", "iperf3", "--server", "--one-off", ready=5201):
        return goodput_mbit_s(iperf3("left", "--client", "10.9.0.2", "--time", args.seconds, "--omit", 1))


def measure_rattan(args, directory):
    """Measures Rattan without an impairment. It creates its own namespaces."""
    config, left, right, output = (directory / name for name in ("rattan.toml", "left", "right", "output"))
    config.write_text(RATTAN)
    right.write_text("exec iperf3 --server --one-off >/dev/null\n")
    left.write_text(f'sleep 1; exec iperf3 --json --client "$RATTAN_BASE" --time {args.seconds} --omit 1 >{output}\n')
    output.unlink(missing_ok=True)
    run_command(args.rattan, "run", "--config", config, "--left", "bash", left, "--right", "bash", right, timeout=args.seconds + 30)
    return goodput_mbit_s(json.loads(output.read_text())["end"])


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="length of a flow (5)")
    parser.add_argument("--rattan", default=os.environ.get("RATTAN", "rattan"), metavar="PATH")
    args = parse_args(parser, required=["iperf3"], seconds=1)
    args.copy = RELEASE / "examples/tun_copy"
    run_in_namespaces(rootless=True)
    results = Results(args, ["iperf3", args.rattan])
    peers = {"copy": args.copy, "rattan": args.rattan}
    results.available(peers)
    transports = [transport for transport in ("veth", "copy", "link", "capture", "rattan") if transport not in results.skipped]
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        for round_ in range(args.rounds):
            for transport in transports:
                with results.catch_errors(transport, peer=transport in peers):
                    results.add({"transport": transport, "round": round_, "gbit_s": measure(transport, args, pathlib.Path(directory)) / 1000})
    medians = {transport: statistics.median(row["gbit_s"] for row in own) for (transport,), own in group_by(results.rows, "transport")}
    return results.finish(table(["one TCP flow, MTU 1500", "Gbit/s", "of veth"],
                               ((transport, median_range(own, "gbit_s", ".2f"), f"{medians[transport] / medians['veth']:.0%}" if "veth" in medians else "–")
                                for (transport,), own in group_by(results.rows, "transport"))))


if __name__ == "__main__":
    sys.exit(main())
