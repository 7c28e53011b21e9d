#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Effects of `longhaul run --ack-ratio` and `--ack-rate` on real transfers and on response times.

    bench/acks/run.py [--only bulk,answers,pace] [--ratios 1,2,4,8,16,32,64] [--rounds 5]

  bulk     iperf3 -R for 4 s at each ratio, CUBIC at the sender: packets for each ACK, goodput,
           retransmissions, time-outs
  answers  responses of 100 KB on one persistent connection and on new ones, ratios 1 and 8: median and p99
  pace     ACKs a second that leave the receiver at targets of 2,000, 20,000 and 60,000, with small segments over veth

bulk and answers use `longhaul link` with 20 ms and 200 Mbit/s, packet by packet. Ratios alternate.
The table has medians of the rounds, with minimum and maximum. Needs root and iperf3.
"""
import contextlib, json, pathlib, socket, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, emulated_link, enable_quickack, hosts, iperf3, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

SENDER, RECEIVER = ("sender", "10.79.0.1/30"), ("receiver", "10.79.0.2/30")
HOST, PORT = "10.79.0.1", 7200
RESPONSE_BYTES = 100_000


def link_path(longhaul):
    return emulated_link(longhaul, SENDER, RECEIVER, "--delay", "10ms", "--rate", "200mbit", "--delivery", "per-packet", "--no-offload", "--realtime")


@contextlib.contextmanager
def veth_path(_):
    add_veth(SENDER, RECEIVER, offload=False)
    for host in (SENDER[0], RECEIVER[0]):
        run_command("ip", "-n", host, "link", "set", "wan0", "gso_max_segs", "1")
    enable_quickack(RECEIVER[0], "10.79.0.0/30")
    yield


def packet_counts():
    """Returns the packets that the receiver's interface has received and sent so far."""
    counts = json.loads(run_command("ip", "-n", RECEIVER[0], "-s", "-j", "link", "show", "wan0"))[0]["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


def timeout_counts():
    """Returns the time-outs and tail loss probes of the sender so far."""
    keys, values = run_command(*netns_exec(SENDER[0], "cat", "/proc/net/netstat")).splitlines()[:2]
    counts = dict(zip(keys.split(), values.split()))
    return int(counts["TCPTimeouts"]), int(counts["TCPLossProbes"])


def run_with_flags(args, flags, program, *words):
    """Runs a program at the receiver under `longhaul run`. Returns its output, and what both hosts counted meanwhile."""
    packets_before, timeouts_before = packet_counts(), timeout_counts()
    output = program(RECEIVER[0], *words, prefix=[args.longhaul, "run", *flags, "--"])
    packets_after, timeouts_after = packet_counts(), timeout_counts()
    return output, {"received": packets_after[0] - packets_before[0], "sent": packets_after[1] - packets_before[1],
                    "time_outs": timeouts_after[0] - timeouts_before[0], "loss_probes": timeouts_after[1] - timeouts_before[1]}


def download(args, flags, *words):
    return run_with_flags(args, flags, iperf3, "-c", HOST, "-R", "-C", "cubic", "-t", args.seconds, *words)


def bulk(args, ratio):
    end, counts = download(args, ["--ack-ratio", ratio])
    return {"ratio": ratio, "packets_per_ack": counts["received"] / counts["sent"],
            "mbit_s": end["sum_received"]["bits_per_second"] / 1e6,
            "retransmits": end["sum_sent"]["retransmits"], "time_outs": counts["time_outs"]}


def answers(args, ratio):
    run_client = lambda host, *words, prefix: json.loads(run_command(*netns_exec(host, *prefix, *words)))
    times, counts = run_with_flags(args, ["--ack-ratio", ratio], run_client, sys.executable, __file__, "--request")
    return {"ratio": ratio, **times, "time_outs": counts["time_outs"], "loss_probes": counts["loss_probes"]}


def pace(args, rate):
    flags = ["--ack-rate", rate, "--ack-interface", "wan0"] if rate else ["--ack-ratio", 1]
    end, counts = download(args, flags, "-M", 536)
    return {"target_acks_s": rate, "acks_s": counts["sent"] / end["sum_received"]["seconds"], "mbit_s": end["sum_received"]["bits_per_second"] / 1e6}


def serve():
    """Sends 100 KB for each byte that a client sends."""
    block = b"x" * RESPONSE_BYTES

    def respond(stream):
        with stream, contextlib.suppress(ConnectionError):
            while stream.recv(1):
                stream.sendall(block)

    with socket.create_server((HOST, PORT), backlog=64) as listener:
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            threading.Thread(target=respond, args=(stream,), daemon=True).start()


def response_ms(stream):
    started, missing = time.monotonic(), RESPONSE_BYTES
    stream.sendall(b"r")
    while missing:
        missing -= len(stream.recv(65536)) or sys.exit("the connection ended")
    return (time.monotonic() - started) * 1e3


def send_requests():
    """Prints the times of 200 responses on one connection and of 50 on new ones, without the handshake, in ms."""
    with socket.create_connection((HOST, PORT)) as stream:
        persistent = [response_ms(stream) for _ in range(200)]
    new = []
    for _ in range(50):
        with socket.create_connection((HOST, PORT)) as stream:
            new.append(response_ms(stream))
    print(json.dumps({"persistent_ms": persistent, "new_ms": new}))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def bulk_table(rows):
    return table(["ratio", "packets per ACK", "goodput, Mbit/s", "retransmitted", "time-outs"],
                 ((ratio, median_range(own, "packets_per_ack", ".1f"), median_range(own, "mbit_s"), median_range(own, "retransmits"),
                   sum(row["time_outs"] for row in own)) for (ratio,), own in group_by(rows, "ratio")))


def answers_table(rows):
    def line(ratio, own):
        for key in ("persistent_ms", "new_ms"):
            all_ms = [ms for row in own for ms in row[key]]
            yield ", ".join(f"{percentile(all_ms, share):.1f}" for share in (0.5, 0.99, 1))
        yield ", ".join(str(sum(row[key] for row in own)) for key in ("time_outs", "loss_probes"))
    return table(["ratio", "persistent: median, p99, max, ms", "new: median, p99, max, ms", "time-outs, loss probes"],
                 ((ratio, *line(ratio, own)) for (ratio,), own in group_by(rows, "ratio")))


def pace_table(rows):
    return table(["target, ACKs a second", "ACKs a second", "goodput, Mbit/s"],
                 ((rate or "none", median_range(own, "acks_s"), median_range(own, "mbit_s")) for (rate,), own in group_by(rows, "target_acks_s")))


PARTS = {
    "bulk": (link_path, ["iperf3", "-s"], 5201, bulk, bulk_table),
    "answers": (link_path, [sys.executable, __file__, "--serve"], PORT, answers, answers_table),
    "pace": (veth_path, ["iperf3", "-s"], 5201, pace, pace_table),
}


def main():
    if sys.argv[1:] in (["--serve"], ["--request"]):
        return serve() if sys.argv[1] == "--serve" else send_requests()
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=list(PARTS), metavar="PART,...")
    parser.add_argument("--ratios", type=lambda text: list(map(int, comma_separated(text))), default=[1, 2, 4, 8, 16, 32, 64], metavar="N,...")
    args = parse_args(parser, required=["iperf3"])
    run_in_namespaces()
    args.seconds = 1 if args.quick else 4
    values = {"bulk": args.ratios, "answers": [1, 8], "pace": [0, 2_000, 20_000, 60_000]}
    results, lines = Results(args, ["iperf3"]), []
    for part in args.only:
        path, server, port, measure, part_table = PARTS[part]
        with results.catch_errors(part), hosts(SENDER[0], RECEIVER[0], sysctls=["net.ipv4.tcp_no_metrics_save=1"]), \
                path(args.longhaul), Program(SENDER[0], *server, ready=port):
            for value in values[part] * args.rounds:
                with results.catch_errors(f"{part} {value}"):
                    results.add({"part": part, **measure(args, value)})
        lines += [f"\n{part}\n", *part_table([row for row in results.rows if row["part"] == part])]
    return results.finish(lines)


if __name__ == "__main__":
    sys.exit(main())
