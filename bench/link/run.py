#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What carrying packets costs on this machine: one iperf3 flow between two namespaces, in turn over each of these.

    bench/link/run.py [--seconds 5] [--rounds 5] [--rattan PATH]

  veth      a plain pair: no user space at all
  copy      a loop between two TUN devices that decides nothing: the floor of any emulator there
  link      longhaul link without shaping: every segment's fate decided
  tap       the same, with every segment recorded at both ends, into memory
  rattan    Rattan without cells, if its executable is on PATH or given by --rattan or RATTAN

A run follows a second that does not count. Needs iperf3, no root; copy needs the example tun_copy beside the release build.
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
def joined(carrier, args, directory):
    """The two hosts, within the block."""
    with hosts("left", "right"):
        if carrier == "veth":
            add_veth(LEFT, RIGHT)
            yield
        elif carrier == "copy":
            with Program(None, args.copy, "left", "10.9.0.1", "right", "10.9.0.2", ready="^ready"):
                yield
        else:
            trace = directory / "tap.pcapng"
            with emulated_link(args.longhaul, LEFT, RIGHT, *["--tap", trace] * (carrier == "tap")) as program:
                yield
                program.terminate()
                # So that nobody takes for cheap what was left out.
                sys.stderr.writelines(f"  {line}\n" for line in program.log().splitlines() if line.startswith("tap "))
            trace.unlink(missing_ok=True)


def mbit_s(end):
    return end["sum_received"]["bits_per_second"] / 1e6


def measure(carrier, args, directory):
    if carrier == "rattan":
        return through_rattan(args, directory)
    with joined(carrier, args, directory), Program("right", "iperf3", "--server", "--one-off", ready=5201):
        return mbit_s(iperf3("left", "--client", "10.9.0.2", "--time", args.seconds, "--omit", 1))


def through_rattan(args, directory):
    """It makes its own namespaces; nothing between its ends."""
    config, left, right, said = (directory / name for name in ("rattan.toml", "left", "right", "said"))
    config.write_text(RATTAN)
    right.write_text("exec iperf3 --server --one-off >/dev/null\n")
    left.write_text(f'sleep 1; exec iperf3 --json --client "$RATTAN_BASE" --time {args.seconds} --omit 1 >{said}\n')
    said.unlink(missing_ok=True)
    run_command(args.rattan, "run", "--config", config, "--left", "bash", left, "--right", "bash", right, timeout=args.seconds + 30)
    return mbit_s(json.loads(said.read_text())["end"])


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rattan", default=os.environ.get("RATTAN", "rattan"), metavar="PATH")
    args = parse_args(parser, required=["iperf3"], seconds=1)
    args.copy = RELEASE / "examples/tun_copy"
    run_in_namespaces(rootless=True)
    results = Results(args, ["iperf3", args.rattan])
    peers = {"copy": args.copy, "rattan": args.rattan}
    results.available(peers)
    carriers = [carrier for carrier in ("veth", "copy", "link", "tap", "rattan") if carrier not in results.skipped]
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        for turn in range(args.rounds):
            for carrier in carriers:
                with results.catch_errors(carrier, peer=carrier in peers):
                    results.add({"carrier": carrier, "round": turn, "gbit_s": measure(carrier, args, pathlib.Path(directory)) / 1000})
    middle = {carrier: statistics.median(row["gbit_s"] for row in own) for (carrier,), own in group_by(results.rows, "carrier")}
    return results.finish(table(["one TCP flow, MTU 1500", "Gbit/s", "of veth"],
                               ((carrier, median_range(own, "gbit_s", ".2f"), f"{middle[carrier] / middle['veth']:.0%}" if "veth" in middle else "–")
                                for (carrier,), own in group_by(results.rows, "carrier"))))


if __name__ == "__main__":
    sys.exit(main())
