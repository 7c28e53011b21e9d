#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `longhaul run --ack-ratio` and `--ack-pace` do to real transfers and to those who wait for them.

    bench/acks/run.py [--only bulk,answers,pace] [--rounds 5] [--ratios 1,2,4,8,16,32,64] [--out DIR]

  bulk     iperf3 -R of 4 s under each ratio, CUBIC at the sender: packets for each ACK, goodput,
           retransmissions, time-outs
  answers  answers of 100 KB, kept connection and new ones, ratio 1 beside 8: median and p99
  pace     ACKs a second that leave, told 2,000, 20,000 and 60,000, with small segments over veth

bulk and answers go through `longhaul link` with 20 ms and 200 Mbit/s, segment by segment. Ratios take
turns; the table has medians of the rounds, and least to most. Writes DIR/raw.json. Needs root, iperf3 and
a release build.
"""
import argparse, contextlib, json, os, pathlib, platform, socket, statistics, subprocess, sys, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGHAUL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "longhaul"
TAG = f"acks{os.getpid()}"
SENDER, RECEIVER = f"{TAG}s", f"{TAG}r"
HOST, PORT = "10.79.0.1", 7200
ANSWER = 100_000


def in_ns(ns, *command):
    return ["ip", "netns", "exec", ns, *map(str, command)]


def must(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def namespaces():
    try:
        for ns in (SENDER, RECEIVER):
            must("ip", "netns", "add", ns)
            must(*in_ns(ns, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"))
        yield
    finally:
        for ns in (SENDER, RECEIVER):
            subprocess.run(["ip", "netns", "delete", ns], check=False)


@contextlib.contextmanager
def emulated():
    link = subprocess.Popen(
        [LONGHAUL, "link", "--name", TAG, "--left", f"{SENDER}:wan0:{HOST}/30", "--right", f"{RECEIVER}:wan0:10.79.0.2/30",
         "--delay", "10ms", "--rate", "200mbit", "--delivery", "exact", "--no-offload", "--realtime"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        if not any(line.strip() == "ready" for line in link.stderr):
            raise SystemExit("bench/acks: the link did not start")
        yield
    finally:
        link.terminate()
        link.communicate(timeout=10)


@contextlib.contextmanager
def veth():
    must("ip", "-n", SENDER, "link", "add", "wan0", "type", "veth", "peer", "name", "wan0", "netns", RECEIVER)
    for ns, address in ((SENDER, f"{HOST}/30"), (RECEIVER, "10.79.0.2/30")):
        must("ip", "-n", ns, "address", "add", address, "dev", "wan0")
        must("ip", "-n", ns, "link", "set", "wan0", "gso_max_segs", "1", "up")
        must(*in_ns(ns, "ethtool", "-K", "wan0", "gro", "off", "tso", "off", "gso", "off"))
    must("ip", "-n", RECEIVER, "route", "replace", "10.79.0.0/30", "dev", "wan0", "quickack", "1")
    yield


@contextlib.contextmanager
def server(*command):
    process = subprocess.Popen(in_ns(SENDER, *command), stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def packets():
    """Received and sent by the receiver's interface so far."""
    counts = json.loads(must(*in_ns(RECEIVER, "ip", "-s", "-j", "link", "show", "wan0")))[0]["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


def troubles():
    """Time-outs and loss probes of the sender so far."""
    names, values = must(*in_ns(SENDER, "cat", "/proc/net/netstat")).splitlines()[:2]
    counts = dict(zip(names.split(), values.split()))
    return int(counts["TCPTimeouts"]), int(counts["TCPLossProbes"])


def under(flags, *command):
    """One program at the receiver; its output, and what its interface and the sender counted."""
    before, hurt, began = packets(), troubles(), time.monotonic()
    output = must(*in_ns(RECEIVER, LONGHAUL, "run", *flags, "--", *command))
    seconds, after, harm = time.monotonic() - began, packets(), troubles()
    return output, {"received": after[0] - before[0], "sent": after[1] - before[1], "seconds": seconds,
                    "time_outs": harm[0] - hurt[0], "loss_probes": harm[1] - hurt[1]}


def bulk(ratio):
    text, counts = under(["--ack-ratio", ratio], "iperf3", "-c", HOST, "-R", "-C", "cubic", "-t", 4, "-J")
    end = json.loads(text)["end"]
    return {"ratio": ratio, "packets_per_ack": counts["received"] / counts["sent"],
            "mbit_s": end["sum_received"]["bits_per_second"] / 1e6,
            "retransmits": end["sum_sent"]["retransmits"], "time_outs": counts["time_outs"]}


def answers(ratio):
    text, counts = under(["--ack-ratio", ratio], sys.executable, __file__, "--ask")
    return {"ratio": ratio, **json.loads(text), "time_outs": counts["time_outs"], "loss_probes": counts["loss_probes"]}


def pace(rate):
    flags = ["--ack-pace", rate, "--ack-interface", "wan0"] if rate else ["--ack-ratio", 1]
    text, counts = under(flags, "iperf3", "-c", HOST, "-R", "-C", "cubic", "-t", 4, "-M", 536, "-J")
    end = json.loads(text)["end"]["sum_received"]
    return {"told": rate, "acks_s": counts["sent"] / end["seconds"], "mbit_s": end["bits_per_second"] / 1e6}


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


def spread(values, digits=0):
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def rows(runs, key):
    for value in dict.fromkeys(run[key] for run in runs):
        yield value, [run for run in runs if run[key] == value]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def bulk_table(runs):
    yield "| ratio | packets an ACK | goodput, Mbit/s | retransmitted | time-outs |\n|---|---|---|---|---|"
    for ratio, own in rows(runs, "ratio"):
        each = lambda name, digits=0: spread([run[name] for run in own], digits)
        yield (f"| {ratio} | {each('packets_per_ack', 1)} | {each('mbit_s')} | {each('retransmits')} "
               f"| {sum(run['time_outs'] for run in own)} |")


def answers_table(runs):
    yield "| ratio | kept: median, p99, most, ms | new: median, p99, most, ms | time-outs, loss probes |\n|---|---|---|---|"
    for ratio, own in rows(runs, "ratio"):
        told = []
        for key in ("kept_ms", "fresh_ms"):
            all_ms = [ms for run in own for ms in run[key]]
            told.append(", ".join(f"{percentile(all_ms, share):.1f}" for share in (0.5, 0.99, 1)))
        hurt = [sum(run[key] for run in own) for key in ("time_outs", "loss_probes")]
        yield f"| {ratio} | {told[0]} | {told[1]} | {hurt[0]}, {hurt[1]} |"


def pace_table(runs):
    yield "| told, a second | ACKs a second | goodput, Mbit/s |\n|---|---|---|"
    for told, own in rows(runs, "told"):
        each = lambda name: spread([run[name] for run in own])
        yield f"| {told or 'nothing'} | {each('acks_s')} | {each('mbit_s')} |"


PARTS = {
    "bulk": (emulated, ["iperf3", "-s"], bulk, bulk_table),
    "answers": (emulated, [sys.executable, __file__, "--serve"], answers, answers_table),
    "pace": (veth, ["iperf3", "-s"], pace, pace_table),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ratios", default="1,2,4,8,16,32,64")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench" / "acks")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.serve:
        return serve()
    if told.ask:
        return ask()
    values = {"bulk": list(map(int, told.ratios.split(","))), "answers": [1, 8], "pace": [0, 2_000, 20_000, 60_000]}
    record = {"machine": {"kernel": platform.release(), "cpus": os.cpu_count(), "load": os.getloadavg()}}
    told.out.mkdir(parents=True, exist_ok=True)
    for part in told.only.split(","):
        wire, serving, measure, table = PARTS[part]
        with namespaces(), wire(), server(*serving):
            record[part] = [measure(value) for _ in range(told.rounds) for value in values[part]]
        (told.out / "raw.json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"\n{part}\n" + "\n".join(table(record[part])), flush=True)


if __name__ == "__main__":
    main()
