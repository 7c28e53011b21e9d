#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it costs to capture an iperf3 flow at line rate, beside tcpdump, and how right the times are.

    bench/capture/run.py [--only cost,times] [--rounds 5] [--seconds 4] [--out DIR]

  cost   iperf3 over veth, as super-packets and segment by segment (offloads off), with nobody, longhaul
         and tcpdump -s 128 looking on, in turns, with rings of the same size: goodput, packets a second,
         drops, CPU seconds for a million packets, start and end included: the kernel
         zeroes a ring when it is made, which takes longer than a million packets if it is large
  times  longhaul tap capture at the left end of `longhaul link --tap`, segment by segment: the difference
         between its times and those of the link, which took or gave the same packet

Writes DIR/raw.json and prints tables with medians of the rounds and least to most. Needs root, iperf3,
tcpdump, ethtool and a release build.
"""
import argparse, collections, contextlib, json, os, pathlib, platform, re, signal, statistics, struct, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGHAUL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "longhaul"
TAG = f"capture{os.getpid()}"
SENDER, RECEIVER = f"{TAG}s", f"{TAG}r"
HOST, PORT = "10.80.0.2", 5201
RING_MB = 32


def in_ns(ns, *command):
    return ["ip", "netns", "exec", ns, *map(str, command)]


def must(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def namespaces():
    for ns in (SENDER, RECEIVER):
        must("ip", "netns", "add", ns)
    try:
        yield
    finally:
        for ns in (SENDER, RECEIVER):
            must("ip", "netns", "delete", ns)


@contextlib.contextmanager
def veth(offload):
    must("ip", "-n", SENDER, "link", "add", "wan0", "type", "veth", "peer", "name", "wan0", "netns", RECEIVER)
    for ns, address in ((SENDER, "10.80.0.1/30"), (RECEIVER, f"{HOST}/30")):
        must("ip", "-n", ns, "address", "add", address, "dev", "wan0")
        must("ip", "-n", ns, "link", "set", "wan0", "up")
        if not offload:
            must(*in_ns(ns, "ethtool", "-K", "wan0", "gro", "off", "tso", "off", "gso", "off"))
    try:
        yield
    finally:
        must("ip", "-n", SENDER, "link", "delete", "wan0")


@contextlib.contextmanager
def iperf3_server():
    process = subprocess.Popen(in_ns(RECEIVER, "iperf3", "-s", "-p", PORT),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def iperf3(seconds, *flags):
    text = must(*in_ns(SENDER, "iperf3", "-c", HOST, "-p", PORT, "-t", seconds, "-J", *flags))
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9


def ended(process):
    """Its output, and the CPU seconds that it took itself."""
    process.send_signal(signal.SIGINT)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench/capture: {process.args} ended with {process.returncode}: {err}")
    return out, err, usage.ru_utime + usage.ru_stime


def start(*command):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Both say one line when they listen.
    process.stderr.readline()
    return process


def by_longhaul(path):
    process = start(LONGHAUL, "tap", "capture", "--netns", SENDER, "-i", "wan0", "--json", "--force",
                    "--ring", f"{RING_MB}MiB", "--snap", 128, "--filter", f"tcp port {PORT}", "-w", path)
    return process, read_longhaul


def read_longhaul(out, _):
    counted = json.loads(out)["interfaces"][0]
    return counted["packets"], counted["dropped"], counted["wire_segments"]


def by_tcpdump(path):
    # -Z root: without it tcpdump gives its rights up and can't write where this runs.
    process = start(*in_ns(SENDER, "tcpdump", "-i", "wan0", "-s", 128, "-n", "-Z", "root", "-B", RING_MB * 1024,
                           "--time-stamp-precision=nano", "-w", path, f"tcp port {PORT}"))
    return process, read_tcpdump


def read_tcpdump(_, err):
    captured = int(re.search(r"(\d+) packets captured", err)[1])
    return captured, int(re.search(r"(\d+) packets dropped by kernel", err)[1]), None


LOOKERS = {"nobody": None, "longhaul": by_longhaul, "tcpdump": by_tcpdump}


def cost(looker, offload, seconds, directory):
    run = {"looker": looker, "offload": offload}
    with veth(offload), iperf3_server():
        if LOOKERS[looker] is None:
            run["gbit_s"] = iperf3(seconds)
            return run
        path = directory / "trace"
        process, read = LOOKERS[looker](path)
        run["gbit_s"] = iperf3(seconds)
        out, err, cpu = ended(process)
        packets, dropped, segments = read(out, err)
        run |= {"packets": packets, "dropped": dropped, "wire_segments": segments, "cpu_s": cpu,
                "packets_s": packets / seconds, "cpu_s_a_million": cpu / packets * 1e6,
                "bytes": path.stat().st_size}
        path.unlink()
    return run


def blocks(path):
    """Packets of a little-endian pcapng file: interface, time in ns, whether it went out, bytes."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            interface, high, low, kept, _ = struct.unpack_from("<IIIII", data, at + 8)
            begin, end = at + 28, at + length - 4
            option, flags = begin + (kept + 3) // 4 * 4, 0
            while option + 4 <= end:
                code, size = struct.unpack_from("<HH", data, option)
                if code == 2:
                    flags = struct.unpack_from("<I", data, option + 4)[0]
                if code == 0:
                    break
                option += 4 + (size + 3) // 4 * 4
            yield interface, high << 32 | low, flags & 3 == 2, data[begin:begin + kept]
        at += length


def name_of(packet):
    """What tells one segment from all others: its headers without what is finished on the way."""
    if packet[0] >> 4 != 4 or packet[9] != 6:
        return None
    tcp = (packet[0] & 15) * 4
    return packet[2:6] + packet[12:20] + packet[tcp:tcp + 16] + packet[tcp + 18:tcp + (packet[tcp + 12] >> 4) * 4]


def times(seconds, directory):
    truth, trace = directory / "truth.pcapng", directory / "trace.pcapng"
    link = subprocess.Popen(
        [LONGHAUL, "link", "--left", f"{SENDER}:wan0:10.80.0.1/30", "--right", f"{RECEIVER}:wan0:{HOST}/30",
         "--delay", "5ms", "--rate", "200mbit", "--delivery", "exact", "--no-offload", "--realtime", "--tap", truth],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        if not any("ready" in line for line in link.stderr):
            raise SystemExit("bench/capture: the link did not start")
        with iperf3_server():
            process, read = by_longhaul(trace)
            iperf3(seconds)
            out, err, _ = ended(process)
    finally:
        link.terminate()
        link.communicate(timeout=30)
    packets, dropped, _ = read(out, err)
    true_times = collections.defaultdict(list)
    for interface, at, outbound, packet in blocks(truth):
        if interface == 0 and (name := name_of(packet)):
            true_times[outbound, name].append(at)
    apart = {True: [], False: []}
    for _, at, outbound, packet in blocks(trace):
        found = true_times.get((outbound, name_of(packet)))
        if found:
            apart[outbound].append((at - found.pop(0)) / 1e3)
    matched = sum(map(len, apart.values()))
    return {"packets": packets, "dropped": dropped, "matched": matched,
            "out_us": quantiles(apart[True]), "in_us": quantiles(apart[False])}


def quantiles(values):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    return {"count": len(values), "min": values[0], "p1": at(.01), "p50": at(.5), "p99": at(.99), "max": values[-1]}


def spread(values, digits=0):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def cost_table(runs):
    yield "| packets | looker | goodput, Gbit/s | packets/s | dropped | CPU s a million |\n|---|---|---|---|---|---|"
    for offload in (True, False):
        for looker in LOOKERS:
            own = [run for run in runs if (run["looker"], run["offload"]) == (looker, offload)]
            if not own:
                continue
            what = "super-packets" if offload else "segments"
            each = lambda name, digits=0: spread([run[name] for run in own], digits)
            rest = "| – | – | – |"
            if looker != "nobody":
                rest = f"| {each('packets_s')} | {sum(run['dropped'] for run in own)} | {each('cpu_s_a_million', 2)} |"
            yield f"| {what} | {looker} | {each('gbit_s', 2)} {rest}"


def times_table(runs):
    yield "| way | packets | least | 1 % | median | 99 % | most |\n|---|---|---|---|---|---|---|"
    for run in runs:
        for way in ("out_us", "in_us"):
            q = run[way]
            yield f"| {way} | {q['count']} | " + " | ".join(f"{q[k]:.1f}" for k in ("min", "p1", "p50", "p99", "max")) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="cost,times")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench-capture")
    args = parser.parse_args()
    parts, raw = args.only.split(","), {"kernel": platform.release(), "cpus": os.cpu_count()}
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out) as scratch, namespaces():
        directory = pathlib.Path(scratch)
        if "cost" in parts:
            raw["cost"] = [cost(looker, offload, args.seconds, directory)
                           for _ in range(args.rounds) for offload in (True, False) for looker in LOOKERS]
            print(*cost_table(raw["cost"]), sep="\n")
        if "times" in parts:
            raw["times"] = [times(args.seconds, directory) for _ in range(args.rounds)]
            print(*times_table(raw["times"]), sep="\n")
    (args.out / "raw.json").write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
