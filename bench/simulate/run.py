#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares TCP of this kernel with `longhaul cc simulate`, on the same path with the same losses.

    bench/simulate/run.py [--seconds 20] [--mbit 1000] [--only reno-40ms-losses,...]
    bench/simulate/run.py --seconds 120 --only paper      one flow of each control, 1 Gbit/s, 180 ms
    bench/simulate/run.py --seconds 60 --mbit 300 --only ack_shift   BIC's n = 1...6 at 200 ms, an ACK for each packet

A case is CONTROL-RTT-KIND: cubic-40ms-overflow, lh_fast+pace-180ms-overflow, lh_bic:ack_shift=3-200ms-each.
One bulk flow runs between two namespaces over `longhaul link` at --mbit with a queue of one BDP. TCP_INFO is read every
5 ms. Then the same path is simulated. Controls of longhaul's are loaded for their case.
KIND says where losses come from: `losses` drops packets by number, `overflow` only fills the queue, `each` is `overflow`
with an ACK for each packet. Each case prints the window after each loss and the goodput of each second, measured and
simulated. The table has the seconds until the flow reaches 90 % of the payload rate of the link, utilisation of the whole
run, the best second, and the median second of the second half. Needs root.
"""
import contextlib, json, pathlib, socket, statistics, struct, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from testbed import (PAYLOAD, Program, Results, argument_parser, comma_separated, emulated_link, enable_quickack, hosts,
    load_control, netns_exec, parse_args, run_command, run_in_namespaces, table)

SENDER, RECEIVER = ("sender", "10.78.0.1/30"), ("receiver", "10.78.0.2/30")
HOST, PORT = "10.78.0.2", 7100
SYSCTLS = [f"net.ipv4.{setting}" for setting in ("tcp_rmem=4096 8388608 536870912", "tcp_wmem=4096 4194304 536870912", "tcp_no_metrics_save=1")]
# A higher priority: the programs must not wait for the processor.
NICE = ["nice", "-n", "-15"]
# Segments of the handshake from the sender, which the simulation does not count.
HANDSHAKE_SEGMENTS = 2
# Numbers of the lost packets. The first loss ends slow start before the queue is full.
LOSSES = [3_000, 150_000, 400_000, 650_000, 900_000, 1_150_000]
SO_MAX_PACING_RATE = 47
# Bytes/s, above the link's rate. A limit makes the kernel pace at 200 % of cwnd/RTT, and at 120 % after slow start.
PACING_CEILING = 1_000_000_000
ALL = ("reno", "cubic", "lh_hstcp", "lh_scalable", "lh_htcp", "lh_bic", "lh_bic_linux", "lh_fast", "lh_trc")
SETS = {
    "kernel": [f"{cc}-{rtt}ms-{kind}" for cc in ("reno", "cubic") for rtt in (40, 100)
               for kind in ("losses", "overflow")],
    # The fifth paper: one flow of each control on the international path.
    "paper": [f"{cc}-180ms-overflow" for cc in ALL],
    # The second paper, table 3.
    "ack_shift": [f"lh_bic:ack_shift={n}-200ms-each" for n in range(1, 7)],
}


class Case:
    """A case, parsed from its name CONTROL-RTT-KIND."""

    def __init__(self, name, mbit):
        self.name, self.rate = name, f"{mbit}mbit"
        # The payload rate of the link, bits/s.
        self.payload_bps = mbit * 1e6 * PAYLOAD
        self.control, rtt, kind = name.rsplit("-", 2)
        self.rtt = int(rtt.removesuffix("ms"))
        self.losses = LOSSES if kind == "losses" else []
        self.quickack = kind == "each"
        self.control, _, pace = self.control.partition("+")
        self.cc, self.paced = self.control.split(":")[0], pace == "pace"
        self.parameters = [parameter for parameter in self.control.partition(":")[2].split(",") if parameter]


@contextlib.contextmanager
def testbed(case, longhaul):
    flags = ["--rate", case.rate, "--delay", f"{case.rtt / 2}ms", "--forward", "queue=1bdp"]
    if case.losses:
        flags += ["--forward", "loss=at:" + ",".join(map(str, case.losses))]
    if case.quickack:
        flags += ["--delivery", "per-packet"]
    with hosts(SENDER[0], RECEIVER[0], sysctls=SYSCTLS), emulated_link(longhaul, SENDER, RECEIVER, "--realtime", *flags):
        if case.quickack:
            enable_quickack(RECEIVER[0], "10.78.0.0/30")
        yield


def sink():
    """Accepts one connection and discards its data. Runs at the receiver."""
    with socket.create_server((HOST, PORT)) as server:
        print("ready", flush=True)
        stream, _ = server.accept()
        buffer = bytearray(1 << 20)
        with contextlib.suppress(ConnectionResetError):
            while stream.recv_into(buffer):
                pass


def source(cc, paced, seconds):
    """Sends as fast as it can, and prints samples of TCP_INFO as JSON. Runs at the sender."""
    stream = socket.socket()
    if paced:
        stream.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, PACING_CEILING)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
    started = time.monotonic()
    stream.connect((HOST, PORT))
    samples, done = [], threading.Event()

    def sample():
        while not done.is_set():
            raw = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            word = lambda index: struct.unpack_from("I", raw, 8 + 4 * index)[0]
            # struct tcp_info: byte 1 is ca_state; 24 words of 32 bits begin at byte 8.
            samples.append({"time_s": time.monotonic() - started, "state": raw[1], "cwnd": word(18), "ssthresh": word(17), "rtt_us": word(15),
                            "retransmits": word(23), "acked": struct.unpack_from("Q", raw, 120)[0]})
            time.sleep(0.005)

    sampler = threading.Thread(target=sample)
    sampler.start()
    block = bytes(1 << 20)
    stream.settimeout(5)
    while time.monotonic() - started < seconds:
        stream.send(block)
    done.set()
    sampler.join()
    print(json.dumps(samples))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def measure(case, args):
    receiver = netns_exec(RECEIVER[0], sys.executable, __file__, "--sink")
    sender = netns_exec(SENDER[0], sys.executable, __file__, "--source", case.cc, int(case.paced), args.seconds)
    with load_control(args.longhaul, case.cc, *case.parameters), testbed(case, args.longhaul), Program(None, *NICE, *receiver, ready="ready"):
        return json.loads(run_command(*NICE, *sender, timeout=args.seconds + 60))


def measured_backoffs(samples):
    """Finds the backoffs in samples: changes of ssthresh with a retransmission. HyStart sets ssthresh without one."""
    found = []
    for before, after in zip(samples, samples[1:]):
        enters_recovery = before["state"] < 3 <= after["state"]
        lost = after["state"] >= 3 or after["retransmits"] > before["retransmits"]
        if enters_recovery or (lost and after["ssthresh"] != before["ssthresh"]):
            found.append({"time_s": after["time_s"], "ssthresh": after["ssthresh"]})
    return found


def measured_goodput(samples, seconds):
    acked = [next((sample["acked"] for sample in samples if sample["time_s"] >= second), samples[-1]["acked"])
             for second in range(seconds + 1)]
    return [(after - before) * 8 for before, after in zip(acked, acked[1:])]


def simulate(case, args):
    loss = [n - HANDSHAKE_SEGMENTS for n in case.losses]
    command = [args.longhaul, "cc", "simulate", "--cc", case.control, "--rate", case.rate, "--rtt", f"{case.rtt}ms",
               "--queue", "1bdp", "--duration", f"{args.seconds}s", "--json"]
    if case.quickack:
        command += ["--ack-ratio", "1", "--gro", "0ms"]
    if case.paced:
        command += ["--pacing"]
    if loss:
        command += ["--loss", "at:" + ",".join(map(str, loss))]
    records = [json.loads(line) for line in run_command(*command).splitlines()]
    flows = [r for r in records if r["record"] == "flow"]
    backoffs = [{"time_s": r["time_s"], "ssthresh": r["ssthresh_packets"]}
                for r in records if r["record"] == "backoff"]
    return backoffs, [r["goodput_bps"] for r in flows], records[-1]


def summarize(case, rates):
    """Statistics of the goodput of each second, as shares of the link's payload rate."""
    shares = [rate / case.payload_bps for rate in rates]
    return {"to_90_s": next((second + 1 for second, share in enumerate(shares) if share >= 0.9), None),
            "utilisation": statistics.mean(shares), "peak": max(shares),
            "stable": statistics.median(shares[len(shares) // 2:])}


def compare(case, args):
    samples = measure(case, args)
    real, real_rate = measured_backoffs(samples), measured_goodput(samples, args.seconds)
    model, model_rate, summary = simulate(case, args)
    print(f"\n{case.name}: {len(real)} backoffs measured, {len(model)} simulated")
    for a, b in zip(real, model):
        print(f"  {a['time_s']:7.2f} s  window {a['ssthresh']:6}   {b['time_s']:7.2f} s  window {b['ssthresh']:6}   "
              f"ratio {b['ssthresh'] / a['ssthresh']:.3f}")
    for label, rates in (("measured ", real_rate), ("simulated", model_rate)):
        print(f"  Mbit/s {label}", *(f"{rate / 1e6:.0f}" for rate in rates))
    rates = [b / a for a, b in zip(real_rate, model_rate) if a > 0]
    windows = [b["ssthresh"] / a["ssthresh"] for a, b in zip(real, model)]
    total = sum(model_rate) / sum(real_rate)
    within_tenth = sum(0.9 <= rate <= 1.1 for rate in rates) / len(rates)
    print(f"  whole run {total:.3f}; seconds {min(rates):.3f} to {max(rates):.3f}, "
          f"median {statistics.median(rates):.3f}, {within_tenth:.0%} within a tenth"
          + (f"; windows {min(windows):.3f} to {max(windows):.3f}" if windows else ""), flush=True)
    return {"case": case.name, "rate": case.rate, "ratio": total, "within_a_tenth": within_tenth,
            "measured": {**summarize(case, real_rate), "backoffs": real, "goodput_bps": real_rate, "samples": samples},
            "simulated": {**summarize(case, model_rate), "backoffs": model, "goodput_bps": model_rate, "summary": summary}}


def table_lines(cases):
    for case in cases:
        real, model = case["measured"], case["simulated"]
        pair = lambda key: f"{real[key]:.3f} ({model[key]:.3f})"
        yield (case["case"], f"{real['to_90_s']} ({model['to_90_s']})", pair("utilisation"), pair("peak"), pair("stable"),
               f"{len(real['backoffs'])} ({len(model['backoffs'])})", f"{case['ratio']:.3f}", f"{case['within_a_tenth']:.0%}", f"{case['load']:.1f}")


def main():
    if sys.argv[1:2] == ["--sink"]:
        return sink()
    if sys.argv[1:2] == ["--source"]:
        cc, paced, seconds = sys.argv[2:]
        return source(cc, paced == "1", float(seconds))
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--seconds", type=int, default=20, help="length of a flow (20)")
    parser.add_argument("--mbit", type=int, default=1000, help="rate of the link (1000)")
    parser.add_argument("--only", type=comma_separated, default=["kernel"], help=f"cases, or a set of cases: {', '.join(SETS)} (kernel)")
    args = parse_args(parser, seconds=4, only=["reno-40ms-losses", "cubic-40ms-overflow", "lh_bic:ack_shift=3-40ms-each"])
    run_in_namespaces()
    results = Results(args)
    for name in [name for choice in args.only for name in SETS.get(choice, [choice])] * args.rounds:
        with results.catch_errors(name):
            results.add(compare(Case(name, args.mbit), args))
    return results.finish(table(["case", "to 90 %, s", "utilisation", "best second", "second half", "backoffs", "goodput, simulated / measured",
                                "seconds within a tenth", "load"], table_lines(results.rows)))


if __name__ == "__main__":
    sys.exit(main())
