#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""This machine's kernel beside `longhaul cc simulate`, on the same path with the same losses.

    bench/simulate/run.py [--seconds 20] [--only reno-40ms-losses,...] [--out DIR]

One bulk flow between two namespaces over `longhaul link` at 1 Gbit/s, its TCP_INFO read every 5 ms,
then the same path simulated. Prints for each case the window at each loss and the goodput of each
second as ratios (simulated / measured), and writes DIR/raw.json. Needs root; builds nothing: run
`cargo build --release` before.
"""
import argparse, contextlib, json, os, pathlib, platform, signal, socket, statistics, struct, subprocess, sys
import threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
LONGHAUL = TARGET / "longhaul"
TAG = f"simulate{os.getpid()}"
NEAR, FAR = f"{TAG}c", f"{TAG}s"
HOST, PORT = "10.78.0.2", 7100
# The handshake is two segments of the sender's direction, which the simulation does not send there.
HANDSHAKE = 2
# The first ends slow start before the queue is full.
LOSSES = [3_000, 150_000, 400_000, 650_000, 900_000, 1_150_000]
# What is left of the window after a loss, as a share of 1024.
BETA = {"reno": 512, "cubic": 717}

CASES = {
    f"{cc}-{rtt}ms-{kind}": (cc, rtt, queue, losses)
    for cc in ("reno", "cubic")
    for rtt in (40, 100)
    for kind, queue, losses in (("losses", "1bdp", LOSSES), ("overflow", "1bdp", []))
}


def in_ns(ns, command):
    # Before others: a stalled end is not what is to be measured.
    return ["nice", "-n", "-15", "ip", "netns", "exec", ns, *map(str, command)]


class Testbed:
    """Two namespaces and a link; gone after the block, whatever happens in it."""

    def __init__(self, rtt, queue, losses):
        self.shape = ["--rate", "1gbit", "--delay", f"{rtt / 2}ms"]
        self.forward = ["--forward", f"queue={queue}"]
        if losses:
            self.forward += ["--forward", "loss=at:" + ",".join(map(str, losses))]

    def __enter__(self):
        for ns in (NEAR, FAR):
            subprocess.run(["ip", "netns", "add", ns], check=True)
            for setting in ("tcp_rmem=4096 8388608 536870912", "tcp_wmem=4096 4194304 536870912",
                            "tcp_no_metrics_save=1"):
                subprocess.run(in_ns(ns, ["sysctl", "-qw", f"net.ipv4.{setting}"]), check=True)
        self.link = subprocess.Popen(
            [LONGHAUL, "link", "--realtime", "--left", f"{NEAR}:wan0:10.78.0.1/30",
             "--right", f"{FAR}:wan0:{HOST}/30", *self.shape, *self.forward],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.link.stderr:
            if "ready" in line:
                return self
        raise SystemExit("bench/simulate: the link did not start")

    def __exit__(self, *_):
        self.link.send_signal(signal.SIGTERM)
        self.link.wait(10)
        for ns in (NEAR, FAR):
            subprocess.run(["ip", "netns", "del", ns], check=False)


def sink():
    """In the far namespace: swallows one connection."""
    with socket.create_server((HOST, PORT)) as server:
        print("ready", flush=True)
        stream, _ = server.accept()
        trash = bytearray(1 << 20)
        with contextlib.suppress(ConnectionResetError):
            while stream.recv_into(trash):
                pass


def source(cc, seconds):
    """In the near namespace: sends as much as it can, prints samples of TCP_INFO as JSON."""
    stream = socket.socket()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
    begin = time.monotonic()
    stream.connect((HOST, PORT))
    samples, over = [], threading.Event()

    def watch():
        while not over.is_set():
            raw = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            word = lambda number: struct.unpack_from("I", raw, 8 + 4 * number)[0]
            # struct tcp_info: state and ca_state are the first bytes, 24 words of 32 bits follow 8.
            samples.append([time.monotonic() - begin, raw[1], word(18), word(17), word(15),
                            word(23), struct.unpack_from("Q", raw, 120)[0]])
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    block = bytes(1 << 20)
    stream.settimeout(5)
    while time.monotonic() - begin < seconds:
        stream.send(block)
    over.set()
    watcher.join()
    print(json.dumps(samples))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


FIELDS = ("at", "state", "cwnd", "ssthresh", "rtt_us", "retransmits", "acked")


def measure(cc, rtt, queue, losses, seconds):
    with Testbed(rtt, queue, losses):
        far = subprocess.Popen(in_ns(FAR, [sys.executable, __file__, "--sink"]),
                               stdout=subprocess.PIPE, text=True)
        far.stdout.readline()
        near = subprocess.run(in_ns(NEAR, [sys.executable, __file__, "--source", cc, seconds]),
                              stdout=subprocess.PIPE, text=True, check=True, timeout=seconds + 60)
        far.wait(10)
    return [dict(zip(FIELDS, sample)) for sample in json.loads(near.stdout)]


def measured_backoffs(samples, cc):
    """The kernel keeps what a loss made of the window in ssthresh, to the packet. HyStart sets it too,
    but then no packet is sent again and the window stays."""
    found = []
    for before, after in zip(samples, samples[1:]):
        lost = after["state"] >= 3 or after["retransmits"] > before["retransmits"]
        if after["ssthresh"] != before["ssthresh"] and lost:
            window = after["ssthresh"] * 1024 / BETA[cc]
            found.append({"at": after["at"], "cwnd": round(window), "ssthresh": after["ssthresh"]})
    return found


def measured_goodput(samples, seconds):
    marks = [next((s["acked"] for s in samples if s["at"] >= at), samples[-1]["acked"])
             for at in range(seconds + 1)]
    return [(after - before) * 8 for before, after in zip(marks, marks[1:])]


def simulate(cc, rtt, queue, losses, seconds):
    loss = [n - HANDSHAKE for n in losses]
    command = [LONGHAUL, "cc", "simulate", "--cc", cc, "--rate", "1gbit", "--rtt", f"{rtt}ms",
               "--queue", queue, "--duration", f"{seconds}s", "--json"]
    if loss:
        command += ["--loss", "at:" + ",".join(map(str, loss))]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    records = [json.loads(line) for line in lines.splitlines()]
    flows = [r for r in records if r["record"] == "flow"]
    backoffs = [{"at": r["at_s"], "cwnd": r["cwnd_packets"], "ssthresh": r["ssthresh_packets"]}
                for r in records if r["record"] == "backoff"]
    return backoffs, [r["goodput_bps"] for r in flows], records[-1]


def compare(name, seconds):
    cc, rtt, queue, losses = CASES[name]
    samples = measure(cc, rtt, queue, losses, seconds)
    real, real_rate = measured_backoffs(samples, cc), measured_goodput(samples, seconds)
    model, model_rate, summary = simulate(cc, rtt, queue, losses, seconds)
    print(f"\n{name}: {len(real)} backoffs measured, {len(model)} simulated")
    for a, b in zip(real, model):
        print(f"  {a['at']:7.2f} s  cwnd {a['cwnd']:6}  ssthresh {a['ssthresh']:6}   "
              f"{b['at']:7.2f} s  cwnd {b['cwnd']:6}  ssthresh {b['ssthresh']:6}   "
              f"ratio {b['cwnd'] / a['cwnd']:.3f}")
    for label, rates in (("measured ", real_rate), ("simulated", model_rate)):
        print(f"  Mbit/s {label}", *(f"{rate / 1e6:.0f}" for rate in rates))
    rates = [b / a for a, b in zip(real_rate, model_rate) if a > 0]
    windows = [b["cwnd"] / a["cwnd"] for a, b in zip(real, model)]
    total = sum(model_rate) / sum(real_rate)
    print(f"  whole run {total:.3f}; seconds {min(rates):.3f} to {max(rates):.3f}, "
          f"median {statistics.median(rates):.3f}"
          + (f"; windows {min(windows):.3f} to {max(windows):.3f}" if windows else ""))
    return {"case": name, "measured": {"backoffs": real, "goodput_bps": real_rate, "samples": samples},
            "simulated": {"backoffs": model, "goodput_bps": model_rate, "summary": summary}}


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=int, default=20)
    arguments.add_argument("--only", default=",".join(CASES))
    arguments.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench" / "simulate")
    arguments.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--source", nargs=2, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.sink:
        return sink()
    if chosen.source:
        return source(chosen.source[0], float(chosen.source[1]))
    cases = [compare(name, chosen.seconds) for name in chosen.only.split(",")]
    chosen.out.mkdir(parents=True, exist_ok=True)
    host = {"kernel": platform.release(), "cpus": os.cpu_count()}
    (chosen.out / "raw.json").write_text(json.dumps({"host": host, "cases": cases}))


if __name__ == "__main__":
    main()
