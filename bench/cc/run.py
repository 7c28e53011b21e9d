#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a congestion control costs the sender's processor for each ACK, beside the kernel's cubic.

    bench/cc/run.py [--rounds 3] [--seconds 5] [--perf] [--out DIR] [CONTROL...]

One flow between two network namespaces through a token bucket whose queue overflows, so that slow
start, growth and losses all happen; the receiver ACKs every packet. Two measures:

  stats  run time of the eBPF programs (kernel.bpf_stats_enabled), the clock's readings included;
         cubic_by_call is the kernel's cubic called by programs that do nothing else
  perf   (with --perf) samples that fell into the control's functions (cubic: the module's; ours: the programs and
         the trampolines that lead to them): rough, and of use on a quiet machine only

Controls that the kernel does not have yet are loaded with `longhaul cc load` and unloaded again.
Writes DIR/raw.json and prints a table of medians. Needs root, perf, iperf3, bpftool, clang and a built
tree, whose libbpf headers it takes.
"""
import argparse, collections, contextlib, json, os, pathlib, platform, re, signal, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONGHAUL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "longhaul"
TAG = f"lhcc{os.getpid()}"
SENDER, RECEIVER = f"{TAG}s", f"{TAG}r"
SAMPLES_PER_S = 20_000
STATS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
CONTROLS = ["cubic", "cubic_by_call", "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# Functions of a congestion control and nothing else.
KERNELS = re.compile(r"^(cubictcp_|bictcp_|cubic_root|hystart_|tcp_reno_|tcp_slow_start$|tcp_cong_avoid_ai$)")
OURS = re.compile(r"^(bpf__tcp_congestion_ops|bpf_trampoline_|__bpf_prog_(enter|exit)|bpf_prog_[0-9a-f]+_\w+_op$)")


def must(*words, **how):
    return subprocess.run(words, check=True, capture_output=True, text=True, **how).stdout


def inside(namespace, *words):
    return ["ip", "netns", "exec", namespace, *words]


class Testbed:
    """The namespaces, gone after the block, whatever happens in it."""

    def __enter__(self):
        for namespace in (SENDER, RECEIVER):
            must("ip", "netns", "add", namespace)
        must("ip", "-n", SENDER, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", RECEIVER)
        for namespace, address in ((SENDER, "10.78.1.1/30"), (RECEIVER, "10.78.1.2/30")):
            must("ip", "-n", namespace, "address", "add", address, "dev", "wire")
            must("ip", "-n", namespace, "link", "set", "wire", "gso_max_segs", "1", "up")
            must(*inside(namespace, "ethtool", "-K", "wire", "gro", "off", "tso", "off", "gso", "off"))
        must("ip", "-n", RECEIVER, "route", "replace", "10.78.1.0/30", "dev", "wire", "quickack", "1")
        must("tc", "-n", SENDER, "qdisc", "add", "dev", "wire", "root", "tbf", "rate", "800mbit", "burst", "64kb", "limit", "600kb")
        self.server = subprocess.Popen(inside(RECEIVER, "iperf3", "-s"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        for namespace in (SENDER, RECEIVER):
            subprocess.run(["ip", "netns", "delete", namespace])


def acks():
    """Segments that came in at the sender."""
    names, values = [line.split() for line in must(*inside(SENDER, "cat", "/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
    return int(values[names.index("InSegs")])


def programs(control):
    """Run time in ns and number of runs of each of its programs."""
    name = re.compile(f"^{control.removeprefix('lh_')}_(init|release|ssthresh|cong_avoid|pkts_acked|set_state|undo_cwnd)")
    times, runs = collections.Counter(), collections.Counter()
    for program in json.loads(must("bpftool", "prog", "show", "--json")):
        if match := name.match(program.get("name", "")):
            times[match[1]] += program.get("run_time_ns", 0)
            runs[match[1]] += program.get("run_cnt", 0)
    return times, runs


def run(control, seconds, data):
    """One flow; ns for each ACK by either measure."""
    flow = inside(SENDER, "iperf3", "-c", "10.78.1.2", "-C", control, "-t", str(seconds), "-J")
    acks_before, (times_before, runs_before) = acks(), programs(control)
    text = must(*(perf_record(data) if data else []), *flow)
    count, (times, runs) = acks() - acks_before, programs(control)
    times, runs = times - times_before, runs - runs_before
    sums = json.loads(text)["end"]["sum_sent"]
    samples = sampled(data, OURS if runs else KERNELS) if data else None
    return {
        "control": control,
        "acks": count,
        "perf_ns": samples / SAMPLES_PER_S * 1e9 / count if data else None,
        "stats_ns": sum(times.values()) / runs["pkts_acked"] if runs else None,
        "stats_each_ns": {name: times[name] / number for name, number in runs.items()},
        "samples": samples,
        "mbit_s": sums["bits_per_second"] / 1e6,
        "retransmits": sums["retransmits"],
    }


def perf_record(data):
    return ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-o", str(data), "--"]


def sampled(data, functions):
    """Samples in functions whose names match."""
    lines = must("perf", "script", "-i", str(data), "-F", "sym").split("\n")
    return sum(1 for line in lines if functions.match(line.strip()))


def compile_cubic_by_call(out):
    headers = max((ROOT / "target").glob("*/build/bpf-*/out/include"), key=os.path.getmtime)
    architecture = {"aarch64": "arm64", "x86_64": "x86"}.get(platform.machine(), platform.machine())
    must("clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", f"-D__TARGET_ARCH_{architecture}", "-I", str(headers),
         "-I", str(ROOT / "crates/congestion/src/bpf"), str(HERE / "cubic_by_call.bpf.c"), "-o", str(out))


@contextlib.contextmanager
def loaded(control, work):
    """In the kernel for the block."""
    if control in AVAILABLE.read_text().split():
        yield
    elif control == "cubic_by_call":
        compile_cubic_by_call(work / "cubic_by_call.o")
        must("bpftool", "struct_ops", "register", str(work / "cubic_by_call.o"))
        try:
            yield
        finally:
            must("bpftool", "struct_ops", "unregister", "name", control)
    else:
        must(str(LONGHAUL), "cc", "load", control)
        try:
            yield
        finally:
            must(str(LONGHAUL), "cc", "unload", control)


def measure(controls, rounds, seconds, work, with_perf):
    runs, data = [], work / "perf.data" if with_perf else None
    with Testbed():
        for _ in range(rounds):
            for control in controls:
                with loaded(control, work):
                    runs.append(run(control, seconds, data))
    return runs


def table(runs):
    yield "| control | ns an ACK (stats) | cong_avoid | pkts_acked | ns an ACK (perf) | ACKs | Mbit/s |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for control in dict.fromkeys(run["control"] for run in runs):
        own = [run for run in runs if run["control"] == control]
        each = lambda name: spread([run["stats_each_ns"].get(name) for run in own])
        whole = lambda name: spread([run[name] for run in own])
        yield f"| {control} | {whole('stats_ns')} | {each('cong_avoid')} | {each('pkts_acked')} | {whole('perf_ns')} | {whole('acks')} | {whole('mbit_s')} |"


def spread(values):
    """Median, and least to most."""
    if None in values:
        return "-"
    return f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("controls", nargs="*", metavar="CONTROL", default=CONTROLS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--perf", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench" / "cc")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is put back
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        with tempfile.TemporaryDirectory() as work:
            runs = measure(told.controls, told.rounds, told.seconds, pathlib.Path(work), told.perf)
    finally:
        STATS.write_text(before)
    machine = {"kernel": platform.release(), "cpu": cpu(), "cpus": os.cpu_count(), "load": os.getloadavg()}
    (told.out / "raw.json").write_text(json.dumps({"machine": machine, "runs": runs}, indent=1) + "\n")
    print("\n".join(table(runs)))


def cpu():
    names = [line.split(": ")[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
