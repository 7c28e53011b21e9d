#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Parallel streams with and without longhaul decp, on the paper's path scaled down.

    bench/decp/run.py [--streams 16,32] [--control reno,cubic,lh_trc] [--modes none,lift,hold,refill]
                      [--rate 1gbit] [--delay 175ms] [--queue 1bdp] [--seconds 120] [--runs 1] [--realtime] [--out DIR]

iperf3 -P over `longhaul link` between two namespaces; `longhaul decp` beside it, which iperf3 knows
nothing of. A control of longhaul's is loaded for its runs; lh_trc:share is TRC-TCP whose gap is that of
an equal share of the link. Writes DIR/raw.json and, of each last run, what decp saw (DIR/looks-….jsonl), and prints a table:
 utilisation is payload received over what the link's rate carries of it, of the whole run
and of its second half; Jain's index and slowest/fastest are of the streams over the whole run.
Needs root, iperf3 and a release build; LONGHAUL and LONGHAUL_LINK name other binaries.
"""
import argparse, contextlib, json, os, pathlib, platform, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
LONGHAUL = os.environ.get("LONGHAUL", str(TARGET / "longhaul"))
LINK = os.environ.get("LONGHAUL_LINK", LONGHAUL)
TAG = f"lhd{os.getpid()}"
LEFT, RIGHT = f"{TAG}l", f"{TAG}r"
PORT = "5201"
MODES = {"none": None, "lift": [], "hold": ["--hold"], "refill": ["--refill"]}
# TCP's payload of a packet of 1500 B with timestamps.
PAYLOAD = 1448 / 1500
BUFFERS = "4096 131072 67108864"


def within(netns, command, **options):
    return subprocess.Popen(["ip", "netns", "exec", netns, *command], **options)


@contextlib.contextmanager
def loaded(control, share):
    """The kernel's name of a control, which is in the kernel for the block."""
    name, _, share_it = control.partition(":")
    if not name.startswith("lh_"):
        yield name
        return
    flags = ["--param", f"rate_mbit={int(share / 1e6)}"] if share_it == "share" else []
    subprocess.run([LONGHAUL, "cc", "load", name, *flags], check=True, stdout=subprocess.DEVNULL)
    try:
        yield name
    finally:
        subprocess.run([LONGHAUL, "cc", "unload", name], check=True, stdout=subprocess.DEVNULL)


def bits(rate):
    units = {"mbit": 1e6, "gbit": 1e9}
    return float(rate[:-4]) * units[rate[-4:]]


class Testbed:
    """Two namespaces and the link; gone after the block, whatever happens in it."""

    def __init__(self, args, directory):
        self.args, self.counters = args, directory / "link.jsonl"

    def __enter__(self):
        for netns in (LEFT, RIGHT):
            subprocess.run(["ip", "netns", "add", netns], check=True)
            within(netns, ["sysctl", "-qw", f"net.ipv4.tcp_rmem={BUFFERS}", f"net.ipv4.tcp_wmem={BUFFERS}",
                           "net.ipv4.tcp_no_metrics_save=1"]).wait()
        self.link = subprocess.Popen(
            [LINK, "link", "--name", TAG, "--left", f"{LEFT}:wan0:10.77.0.1/30",
             "--right", f"{RIGHT}:wan0:10.77.0.2/30", "--delay", self.args.delay, "--rate", self.args.rate,
             "--queue", self.args.queue, "--counters", self.counters, *["--realtime"] * self.args.realtime],
            stderr=subprocess.PIPE, text=True)
        for line in self.link.stderr:
            if line.strip().endswith("ready"):
                return self
        raise RuntimeError("longhaul link did not start")

    def __exit__(self, *_):
        self.link.terminate()
        self.link.communicate()
        for netns in (LEFT, RIGHT):
            subprocess.run(["ip", "netns", "del", netns], check=False)

    def delivered(self):
        """(seconds, bytes) of the data direction so far."""
        lines = (json.loads(line) for line in self.counters.read_text().splitlines())
        return [(one["seconds"], one["delivered_bytes"]) for one in lines
                if one.get("direction") == "forward" and "delivered_bytes" in one]


def measure(args, streams, control, mode):
    with (tempfile.TemporaryDirectory() as directory, Testbed(args, pathlib.Path(directory)) as bed,
          loaded(control, bits(args.rate) * PAYLOAD / streams) as name):
        server = within(RIGHT, ["iperf3", "--server", "--one-off", "--port", PORT], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        decp = None
        if MODES[mode] is not None:
            decp = subprocess.Popen([LONGHAUL, "decp", "--netns", LEFT, "--match", f"dport {PORT}", "--json",
                                     *MODES[mode]], stdout=subprocess.PIPE, text=True)
        client = within(LEFT, ["iperf3", "--client", "10.77.0.2", "--port", PORT, "--parallel", str(streams),
                               "--time", str(args.seconds), "--congestion", name, "--json"],
                        stdout=subprocess.PIPE, text=True)
        middle = threshold(bed, args.seconds)
        looks = collect(decp, client, pathlib.Path(args.out) / f"looks-{streams}-{control}-{mode}.jsonl")
        record = json.loads(looks.pop("iperf3"))
        server.wait(timeout=30)
        return {"streams": streams, "control": control, "mode": mode, **figures(args, record), **middle(), **looks}


def threshold(bed, seconds):
    """Utilisation of the second half, by the link's own counters."""
    began = time.monotonic()

    def at_end():
        counts = bed.delivered()
        end = counts[-1][0] - (time.monotonic() - began - seconds)
        half = [c for c in counts if end - seconds / 2 <= c[0] <= end]
        carried = (half[-1][1] - half[0][1]) * 8 / (half[-1][0] - half[0][0])
        return {"utilisation_second_half": carried / bits(bed.args.rate)}
    return at_end


def collect(decp, client, place):
    if decp is None:
        return {"iperf3": client.communicate()[0]}
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(decp.stdout))
    reader.start()
    text = client.communicate()[0]
    decp.terminate()
    decp.wait()
    reader.join()
    place.write_text("".join(lines))
    return {"iperf3": text, "decp": json.loads(lines[-1])["summary"]}


def figures(args, record):
    if "error" in record:
        raise RuntimeError(record["error"])
    rates = [stream["receiver"]["bits_per_second"] for stream in record["end"]["streams"]]
    total = record["end"]["sum_received"]["bits_per_second"]
    return {"goodput_bps": total, "utilisation": total / bits(args.rate) / PAYLOAD,
            "jain": sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates),
            "slowest_to_fastest": min(rates) / max(rates),
            "retransmits": record["end"]["sum_sent"]["retransmits"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, value in (("streams", "16,32"), ("control", "reno,cubic"), ("modes", ",".join(MODES)),
                        ("rate", "1gbit"), ("delay", "175ms"), ("queue", "1bdp"), ("out", "out/bench/decp")):
        parser.add_argument(f"--{flag}", default=value)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--realtime", action="store_true", help="the link goes before whatever else this machine does")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench/decp needs root for its namespaces")
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    cells = [(int(streams), control, mode) for streams in args.streams.split(",")
             for control in args.control.split(",") for mode in args.modes.split(",")]
    results = []
    print(f"{'streams':>7} {'control':>12} {'mode':>7} {'util':>6} {'2nd half':>8} {'Jain':>6} {'slow/fast':>9} {'retrans':>8} load")
    for _ in range(args.runs):
        for cell in cells:
            one = measure(args, *cell)
            one["load"] = os.getloadavg()[0]
            results.append(one)
            print(f"{one['streams']:7} {one['control']:>12} {one['mode']:>7} {one['utilisation']:6.3f} "
                  f"{one['utilisation_second_half']:8.3f} {one['jain']:6.3f} {one['slowest_to_fastest']:9.3f} "
                  f"{one['retransmits']:8} {one['load']:.1f}", flush=True)
            machine = {"kernel": platform.release(), "cpus": os.cpu_count(), "arguments": vars(args)}
            (out / "raw.json").write_text(json.dumps({"machine": machine, "runs": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
