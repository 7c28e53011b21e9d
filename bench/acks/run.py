#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `longhaul run --ack-ratio` and `--ack-rate` do to real transfers and to those who wait for them.

    bench/acks/run.py [--only bulk,answers,pace] [--ratios 1,2,4,8,16,32,64] [--rounds 5]

  bulk     iperf3 -R of 4 s under each ratio, CUBIC at the sender: packets for each ACK, goodput,
           retransmissions, time-outs
  answers  answers of 100 KB, kept connection and new ones, ratio 1 beside 8: median and p99
  pace     ACKs a second that leave, told 2,000, 20,000 and 60,000, with small segments over veth

bulk and answers go through `longhaul link` with 20 ms and 200 Mbit/s, segment by segment. Ratios take
turns; the table has medians of the rounds, and least to most. Needs root and iperf3.
"""
import contextlib, json, pathlib, socket, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, add_veth, emulated_link, enable_quickack, hosts, iperf3, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

SENDER, RECEIVER = ("sender", "10.79.0.1/30"), ("receiver", "10.79.0.2/30")
HOST, PORT = "10.79.0.1", 7200
ANSWER = 100_000


def emulated(longhaul):
    return emulated_link(longhaul, SENDER, RECEIVER, "--delay", "10ms", "--rate", "200mbit", "--delivery", "exact", "--no-offload", "--realtime")


@contextlib.contextmanager
def veth(_):
    add_veth(SENDER, RECEIVER, offload=False)
    for host in (SENDER[0], RECEIVER[0]):
        run_command("ip", "-n", host, "link", "set", "wan0", "gso_max_segs", "1")
    enable_quickack(RECEIVER[0], "10.79.0.0/30")
    yield


def packets():
    """Received and sent by the receiver's interface so far."""
    counts = json.loads(run_command("ip", "-n", RECEIVER[0], "-s", "-j", "link", "show", "wan0"))[0]["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


def troubles():
    """Time-outs and loss probes of the sender so far."""
    keys, values = run_command(*netns_exec(SENDER[0], "cat", "/proc/net/netstat")).splitlines()[:2]
    counts = dict(zip(keys.split(), values.split()))
    return int(counts["TCPTimeouts"]), int(counts["TCPLossProbes"])


def under(args, flags, program, *words):
    """One program at the receiver; its output, and what its interface and the sender counted."""
    before, hurt = packets(), troubles()
    output = program(RECEIVER[0], *words, prefix=[args.longhaul, "run", *flags, "--"])
    after, harm = packets(), troubles()
    return output, {"received": after[0] - before[0], "sent": after[1] - before[1],
                    "time_outs": harm[0] - hurt[0], "loss_probes": harm[1] - hurt[1]}


def download(args, flags, *words):
    return under(args, flags, iperf3, "-c", HOST, "-R", "-C", "cubic", "-t", args.seconds, *words)


def bulk(args, ratio):
    end, counts = download(args, ["--ack-ratio", ratio])
    return {"ratio": ratio, "packets_per_ack": counts["received"] / counts["sent"],
            "mbit_s": end["sum_received"]["bits_per_second"] / 1e6,
            "retransmits": end["sum_sent"]["retransmits"], "time_outs": counts["time_outs"]}


def answers(args, ratio):
    asking = lambda host, *words, through: json.loads(run_command(*netns_exec(host, *through, *words)))
    took, counts = under(args, ["--ack-ratio", ratio], asking, sys.executable, __file__, "--ask")
    return {"ratio": ratio, **took, "time_outs": counts["time_outs"], "loss_probes": counts["loss_probes"]}


def pace(args, rate):
    flags = ["--ack-rate", rate, "--ack-interface", "wan0"] if rate else ["--ack-ratio", 1]
    end, counts = download(args, flags, "-M", 536)
    return {"told": rate, "acks_s": counts["sent"] / end["sum_received"]["seconds"], "mbit_s": end["sum_received"]["bits_per_second"] / 1e6}


def serve():
    """Answers each byte with 100 KB."""
    block = b"x" * ANSWER

    def answer(stream):
        with stream, contextlib.suppress(ConnectionError):
            while stream.recv(1):
                stream.sendall(block)

    with socket.create_server((HOST, PORT), backlog=64) as listener:
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            threading.Thread(target=answer, args=(stream,), daemon=True).start()


def asked(stream):
    begin, left = time.monotonic(), ANSWER
    stream.sendall(b"r")
    while left:
        left -= len(stream.recv(65536)) or sys.exit("the connection ended")
    return (time.monotonic() - begin) * 1e3


def ask():
    """200 answers on one connection, 50 on one each; milliseconds, the handshake not counted."""
    with socket.create_connection((HOST, PORT)) as stream:
        kept = [asked(stream) for _ in range(200)]
    fresh = []
    for _ in range(50):
        with socket.create_connection((HOST, PORT)) as stream:
            fresh.append(asked(stream))
    print(json.dumps({"kept_ms": kept, "fresh_ms": fresh}))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def bulk_table(rows):
    return table(["ratio", "packets an ACK", "goodput, Mbit/s", "retransmitted", "time-outs"],
                 ((ratio, median_range(own, "packets_per_ack", ".1f"), median_range(own, "mbit_s"), median_range(own, "retransmits"),
                   sum(row["time_outs"] for row in own)) for (ratio,), own in group_by(rows, "ratio")))


def answers_table(rows):
    def line(ratio, own):
        for key in ("kept_ms", "fresh_ms"):
            all_ms = [ms for row in own for ms in row[key]]
            yield ", ".join(f"{percentile(all_ms, share):.1f}" for share in (0.5, 0.99, 1))
        yield ", ".join(str(sum(row[key] for row in own)) for key in ("time_outs", "loss_probes"))
    return table(["ratio", "kept: median, p99, most, ms", "new: median, p99, most, ms", "time-outs, loss probes"],
                 ((ratio, *line(ratio, own)) for (ratio,), own in group_by(rows, "ratio")))


def pace_table(rows):
    return table(["told, a second", "ACKs a second", "goodput, Mbit/s"],
                 ((rate or "nothing", median_range(own, "acks_s"), median_range(own, "mbit_s")) for (rate,), own in group_by(rows, "told")))


PARTS = {
    "bulk": (emulated, ["iperf3", "-s"], 5201, bulk, bulk_table),
    "answers": (emulated, [sys.executable, __file__, "--serve"], PORT, answers, answers_table),
    "pace": (veth, ["iperf3", "-s"], 5201, pace, pace_table),
}


def main():
    if sys.argv[1:] in (["--serve"], ["--ask"]):
        return serve() if sys.argv[1] == "--serve" else ask()
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=list(PARTS), metavar="PART,...")
    parser.add_argument("--ratios", type=lambda text: list(map(int, comma_separated(text))), default=[1, 2, 4, 8, 16, 32, 64], metavar="N,...")
    args = parse_args(parser, required=["iperf3"])
    run_in_namespaces()
    args.seconds = 1 if args.quick else 4
    values = {"bulk": args.ratios, "answers": [1, 8], "pace": [0, 2_000, 20_000, 60_000]}
    results, lines = Results(args, ["iperf3"]), []
    for part in args.only:
        wiring, server, port, measure, shown = PARTS[part]
        with results.catch_errors(part), hosts(SENDER[0], RECEIVER[0], sysctls=["net.ipv4.tcp_no_metrics_save=1"]), \
                wiring(args.longhaul), Program(SENDER[0], *server, ready=port):
            for value in values[part] * args.rounds:
                with results.catch_errors(f"{part} {value}"):
                    results.add({"part": part, **measure(args, value)})
        lines += [f"\n{part}\n", *shown([row for row in results.rows if row["part"] == part])]
    return results.finish(lines)


if __name__ == "__main__":
    sys.exit(main())
