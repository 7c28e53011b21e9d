#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a congestion control costs the sender's processor for each ACK, beside the kernel's cubic.

    bench/cc/run.py [CONTROL...] [--seconds 5] [--perf] [--rounds 3]

One flow between two network namespaces through a token bucket whose queue overflows, so that slow
start, growth and losses all happen; the receiver ACKs every packet. Two measures:

  stats  run time of the eBPF programs (kernel.bpf_stats_enabled), the clock's readings included;
         cubic_by_call is the kernel's cubic called by programs that do nothing else
  perf   (with --perf) samples that fell into the control's functions (cubic: the module's; ours: the programs and
         the trampolines that lead to them): rough, and of use on a quiet machine only

Controls that the kernel does not have yet are loaded with `longhaul cc load` and unloaded again.
The table has medians of the rounds, and least to most. Needs root, iperf3, ethtool and bpftool; cubic_by_call
clang and a built tree, whose libbpf headers it takes; --perf needs perf.
"""
import collections, contextlib, json, os, pathlib, platform, re, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, ProgramError, add_veth, enable_quickack, hosts, iperf3, load_control, netns_exec, run_command, run_in_namespaces
from results import ROOT, Results, argument_parser, group_by, median_range, parse_args, table

SENDER, RECEIVER = ("sender", "10.78.1.1/30"), ("receiver", "10.78.1.2/30")
SAMPLES_PER_S = 20_000
STATS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
BY_CALL = "cubic_by_call"
CONTROLS = ["cubic", BY_CALL, "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# Functions of a congestion control and nothing else.
KERNELS = re.compile(r"^(cubictcp_|bictcp_|cubic_root|hystart_|tcp_reno_|tcp_slow_start$|tcp_cong_avoid_ai$)")
OURS = re.compile(r"^(bpf__tcp_congestion_ops|bpf_trampoline_|__bpf_prog_(enter|exit)|bpf_prog_[0-9a-f]+_\w+_op$)")


@contextlib.contextmanager
def testbed():
    with hosts(SENDER[0], RECEIVER[0]):
        add_veth(SENDER, RECEIVER, offload=False)
        for host in (SENDER[0], RECEIVER[0]):
            run_command("ip", "-n", host, "link", "set", "wan0", "gso_max_segs", "1")
        enable_quickack(RECEIVER[0], "10.78.1.0/30")
        run_command("tc", "-n", SENDER[0], "qdisc", "add", "dev", "wan0", "root", "tbf", "rate", "800mbit", "burst", "64kb", "limit", "600kb")
        with Program(RECEIVER[0], "iperf3", "-s", ready=5201):
            yield


@contextlib.contextmanager
def counting():
    """The kernel keeps run times of eBPF programs within the block."""
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


def acks():
    """Segments that came in at the sender."""
    names, values = [line.split() for line in run_command(*netns_exec(SENDER[0], "cat", "/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
    return int(values[names.index("InSegs")])


def programs(control):
    """Run time in ns and number of runs of each of its programs."""
    name = re.compile(f"^{control.removeprefix('lh_')}_(init|release|ssthresh|cong_avoid|pkts_acked|set_state|undo_cwnd)")
    times, runs = collections.Counter(), collections.Counter()
    for program in json.loads(run_command("bpftool", "prog", "show", "--json")):
        if match := name.match(program.get("name", "")):
            times[match[1]] += program.get("run_time_ns", 0)
            runs[match[1]] += program.get("run_cnt", 0)
    return times, runs


def run(control, seconds, data):
    """One flow; ns for each ACK by either measure."""
    acks_before, (times_before, runs_before) = acks(), programs(control)
    end = iperf3(SENDER[0], "-c", "10.78.1.2", "-C", control, "-t", seconds, before=perf_record(data) if data else ())
    count, (times, runs) = acks() - acks_before, programs(control)
    times, runs = times - times_before, runs - runs_before
    samples = sampled(data, OURS if runs else KERNELS) if data else None
    each = {name: times[name] / number for name, number in runs.items()}
    return {
        "control": control,
        "acks": count,
        "perf_ns": samples / SAMPLES_PER_S * 1e9 / count if data else None,
        "stats_ns": sum(times.values()) / runs["pkts_acked"] if runs else None,
        "cong_avoid_ns": each.get("cong_avoid"),
        "pkts_acked_ns": each.get("pkts_acked"),
        "stats_each_ns": each,
        "samples": samples,
        "mbit_s": end["sum_sent"]["bits_per_second"] / 1e6,
        "retransmits": end["sum_sent"]["retransmits"],
    }


def perf_record(data):
    return ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-o", str(data), "--"]


def sampled(data, functions):
    """Samples in functions whose names match."""
    # perf leaves a symbol blank whose address is not asked for, too.
    lines = run_command("perf", "script", "-i", data, "-F", "ip,sym").splitlines()
    return sum(1 for line in lines if functions.match(line.strip().partition(" ")[2]))


@contextlib.contextmanager
def by_call(work):
    """The kernel has a cubic that is called by programs within the block."""
    headers = max((ROOT / "target").glob("*/build/*bpf-*/out/include"), key=os.path.getmtime, default=None)
    if headers is None:
        raise ProgramError("no libbpf headers: build the tree")
    architecture = {"aarch64": "arm64", "x86_64": "x86"}.get(platform.machine(), platform.machine())
    run_command("clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", f"-D__TARGET_ARCH_{architecture}", "-I", headers,
         "-I", ROOT / "crates/congestion/src/bpf", pathlib.Path(__file__).with_name("cubic_by_call.bpf.c"), "-o", work / "by_call.o")
    run_command("bpftool", "struct_ops", "register", work / "by_call.o")
    try:
        yield
    finally:
        run_command("bpftool", "struct_ops", "unregister", "name", BY_CALL)


def main():
    parser = argument_parser(__doc__, rounds=3)
    parser.add_argument("controls", nargs="*", metavar="CONTROL", default=CONTROLS)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--perf", action="store_true")
    args = parse_args(parser, required=["iperf3", "ethtool", "bpftool", *["perf"] * parser.parse_args().perf], seconds=1)
    run_in_namespaces()
    results = Results(args, ["iperf3", "bpftool", "clang", "perf"])
    with tempfile.TemporaryDirectory() as work, counting(), testbed():
        work = pathlib.Path(work)
        for control in args.controls * args.rounds:
            with results.catch_errors(control, peer=control == BY_CALL), \
                    by_call(work) if control == BY_CALL else load_control(args.longhaul, control):
                results.add(run(control, args.seconds, work / "perf.data" if args.perf else None))
    shown = ["stats_ns", "cong_avoid_ns", "pkts_acked_ns", "perf_ns", "acks", "mbit_s"]
    return results.finish(table(["control", "ns an ACK (stats)", "cong_avoid", "pkts_acked", "ns an ACK (perf)", "ACKs", "Mbit/s"],
                               ((control, *(median_range(own, key) for key in shown)) for (control,), own in group_by(results.rows, "control"))))


if __name__ == "__main__":
    sys.exit(main())
