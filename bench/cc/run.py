#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processor time of congestion controls for each ACK at the sender, compared with the kernel's cubic.

    bench/cc/run.py [CONTROL...] [--seconds 5] [--perf] [--rounds 3]

One flow runs between two network namespaces through a token bucket whose queue overflows. The flow goes through slow
start, congestion avoidance and losses. The receiver acknowledges every packet. Two measures:

  stats  run time of the eBPF programs (kernel.bpf_stats_enabled), which includes reading the clock;
         cubic_by_call is the kernel's cubic, called by eBPF programs that do nothing else
  perf   (with --perf) samples in the control's functions: for cubic those of the module, for longhaul's the programs
         and their trampolines. This is rough, and needs a quiet machine.

Controls that the kernel does not have are loaded by `longhaul cc load` and unloaded afterwards.
The table has medians of the rounds, with minimum and maximum. Needs root, iperf3, ethtool and bpftool. cubic_by_call
needs clang and a built tree, for its libbpf headers. --perf needs perf.
"""
import collections, contextlib, json, os, pathlib, platform, re, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import (ROOT, Program, ProgramError, Results, add_veth, argument_parser, enable_quickack, group_by, hosts,
    iperf3, load_control, median_range, netns_exec, parse_args, run_command, run_in_namespaces, table)

SENDER, RECEIVER = ("sender", "10.78.1.1/30"), ("receiver", "10.78.1.2/30")
SAMPLES_PER_S = 20_000
STATS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
CUBIC_BY_CALL = "cubic_by_call"
CONTROLS = ["cubic", CUBIC_BY_CALL, "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc"]
# Functions that belong to a congestion control only.
KERNEL_FUNCTIONS = re.compile(r"^(cubictcp_|bictcp_|cubic_root|hystart_|tcp_reno_|tcp_slow_start$|tcp_cong_avoid_ai$)")
BPF_FUNCTIONS = re.compile(r"^(bpf__tcp_congestion_ops|bpf_trampoline_|__bpf_prog_(enter|exit)|bpf_prog_[0-9a-f]+_\w+_op$)")


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
def bpf_stats():
    """Makes the kernel count run times of eBPF programs for the block."""
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


def ack_count():
    """Returns the segments that the sender has received so far."""
    names, values = [line.split() for line in run_command(*netns_exec(SENDER[0], "cat", "/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
    return int(values[names.index("InSegs")])


def program_stats(control):
    """Returns the run times in ns and the run counts of a control's eBPF programs, by callback."""
    name = re.compile(f"^{control.removeprefix('lh_')}_(init|release|ssthresh|cong_avoid|pkts_acked|set_state|undo_cwnd)")
    times, runs = collections.Counter(), collections.Counter()
    for program in json.loads(run_command("bpftool", "prog", "show", "--json")):
        if match := name.match(program.get("name", "")):
            times[match[1]] += program.get("run_time_ns", 0)
            runs[match[1]] += program.get("run_cnt", 0)
    return times, runs


def run(control, seconds, data):
    """Runs one flow. Returns the ns for each ACK by both measures; `data` is the file for perf, or None."""
    acks_before, (times_before, runs_before) = ack_count(), program_stats(control)
    perf = ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", SAMPLES_PER_S, "-o", data, "--"] if data else ()
    end = iperf3(SENDER[0], "-c", "10.78.1.2", "-C", control, "-t", seconds, prefix=perf)
    acks, (times, runs) = ack_count() - acks_before, program_stats(control)
    times, runs = times - times_before, runs - runs_before
    samples = count_samples(data, BPF_FUNCTIONS if runs else KERNEL_FUNCTIONS) if data else None
    ns_by_callback = {name: times[name] / number for name, number in runs.items()}
    return {
        "control": control,
        "acks": acks,
        "perf_ns": samples / SAMPLES_PER_S * 1e9 / acks if data else None,
        "stats_ns": sum(times.values()) / runs["pkts_acked"] if runs else None,
        "cong_avoid_ns": ns_by_callback.get("cong_avoid"),
        "pkts_acked_ns": ns_by_callback.get("pkts_acked"),
        "ns_by_callback": ns_by_callback,
        "samples": samples,
        "mbit_s": end["sum_sent"]["bits_per_second"] / 1e6,
        "retransmits": end["sum_sent"]["retransmits"],
    }


def count_samples(data, functions):
    """Counts the samples in functions whose names match."""
    # Without the field ip, perf leaves some symbols blank.
    lines = run_command("perf", "script", "-i", data, "-F", "ip,sym").splitlines()
    return sum(1 for line in lines if functions.match(line.strip().partition(" ")[2]))


@contextlib.contextmanager
def cubic_by_call(work):
    """Registers, for the block, eBPF programs that call the kernel's cubic."""
    headers = max((ROOT / "target").glob("*/build/*bpf-*/out/include"), key=os.path.getmtime, default=None)
    if headers is None:
        raise ProgramError("no libbpf headers: build the tree first")
    architecture = {"aarch64": "arm64", "x86_64": "x86"}.get(platform.machine(), platform.machine())
    run_command("clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", f"-D__TARGET_ARCH_{architecture}", "-I", headers,
         "-I", ROOT / "crates/congestion/src/bpf", pathlib.Path(__file__).with_name("cubic_by_call.bpf.c"), "-o", work / "by_call.o")
    run_command("bpftool", "struct_ops", "register", work / "by_call.o")
    try:
        yield
    finally:
        run_command("bpftool", "struct_ops", "unregister", "name", CUBIC_BY_CALL)


def main():
    parser = argument_parser(__doc__, rounds=3)
    parser.add_argument("controls", nargs="*", metavar="CONTROL", default=CONTROLS, help=f"({' '.join(CONTROLS)})")
    parser.add_argument("--seconds", type=int, default=5, help="length of a flow (5)")
    parser.add_argument("--perf", action="store_true", help="measure by perf, too")
    args = parse_args(parser, required=["iperf3", "ethtool", "bpftool", *["perf"] * parser.parse_args().perf], seconds=1)
    run_in_namespaces()
    results = Results(args, ["iperf3", "bpftool", "clang", "perf"])
    with tempfile.TemporaryDirectory() as work, bpf_stats(), testbed():
        work = pathlib.Path(work)
        for control in args.controls * args.rounds:
            with results.catch_errors(control, peer=control == CUBIC_BY_CALL), \
                    cubic_by_call(work) if control == CUBIC_BY_CALL else load_control(args.longhaul, control):
                results.add(run(control, args.seconds, work / "perf.data" if args.perf else None))
    columns = ["stats_ns", "cong_avoid_ns", "pkts_acked_ns", "perf_ns", "acks", "mbit_s"]
    return results.finish(table(["control", "ns per ACK (stats)", "cong_avoid", "pkts_acked", "ns per ACK (perf)", "ACKs", "Mbit/s"],
                               ((control, *(median_range(own, key) for key in columns)) for (control,), own in group_by(results.rows, "control"))))


if __name__ == "__main__":
    sys.exit(main())
