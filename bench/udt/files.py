#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files of longhaul udt and libudt 4.11 to each other, over paths shorter than 10 ms, on which a sender waits for every ACK.

    bench/udt/files.py [--bytes 20000000] [--delays 0.1,1,10] [--loss 0] [--queue 1bdp] [--pairs longhaul-libudt,...] [--beside PATH]

Two network namespaces, joined by `longhaul link` at 100 Mbit/s with each of these delays, in ms, one way. All settings are the
defaults of both. libudt's ends are crates/udt/tests/udt/libudt/peer.cpp, which send and receive as its own example programs do.
What counts is the time from the sender's start until the receiver's file has all bytes. `--beside` is another build of longhaul,
`beside` in pairs.

Needs root; libudt needs c++ and libudt-dev.
"""
import contextlib, dataclasses, pathlib, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, ProgramError, emulated_link, hosts, run_command, run_in_namespaces
from results import ROOT, Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

SOURCE, TARGET = ("source", "10.78.0.1/30"), ("target", "10.78.0.2/30")
ADDRESS, PORT = "10.78.0.2", 9000
RATE = "100mbit"
OURS, THEIRS, BESIDE = "longhaul", "libudt", "beside"
PAIRS = [f"{sender}-{receiver}" for sender in (OURS, THEIRS) for receiver in (OURS, THEIRS)]
# How long a file may take before it counts as not done.
PATIENCE_S = 120


@dataclasses.dataclass(frozen=True)
class File:
    """What is sent, and where it arrives."""
    source: pathlib.Path
    target: pathlib.Path
    bytes: int

    def is_there(self):
        return self.target.exists() and self.target.stat().st_size == self.bytes

    def is_whole(self):
        return self.target.read_bytes() == self.source.read_bytes()


def build(who, args):
    return args.beside if who == BESIDE else args.longhaul


@contextlib.contextmanager
def receiver(who, args, file):
    if who != THEIRS:
        with Program(TARGET[0], build(who, args), "udt", "receive", file.target, ready="listening"):
            yield
        return
    with file.target.open("wb"):
        words = f'exec "{args.libudt}" receive stream listen {PORT} 0.0.0.0 0 >"{file.target}"'
        with Program(TARGET[0], "sh", "-c", words, ready="ready"):
            yield


def sender(who, args, file):
    if who != THEIRS:
        return Program(SOURCE[0], build(who, args), "udt", "send", file.source, f"{ADDRESS}:{PORT}")
    words = f'exec "{args.libudt}" send stream connect 0 {ADDRESS} {PORT} <"{file.source}"'
    return Program(SOURCE[0], "sh", "-c", words)


def seconds(pair, args, file):
    file.target.unlink(missing_ok=True)
    ours_or_theirs = pair.split("-")
    with receiver(ours_or_theirs[1], args, file):
        began = time.monotonic()
        with sender(ours_or_theirs[0], args, file):
            while not file.is_there():
                if time.monotonic() > began + PATIENCE_S:
                    arrived = file.target.stat().st_size if file.target.exists() else 0
                    raise ProgramError(f"not done in {PATIENCE_S} s: {arrived} bytes")
                time.sleep(0.002)
            took = time.monotonic() - began
    if not file.is_whole():
        raise ProgramError("other bytes arrived")
    return took


def a_round(args, results, turn, file):
    """Who begins changes from round to round."""
    begin = turn % len(args.pairs)
    for delay in args.delays:
        flags = ("--rate", RATE, "--delay", f"{delay}ms", "--loss", f"{args.loss}%", *args.queue)
        with hosts(SOURCE[0], TARGET[0]), emulated_link(args.longhaul, SOURCE, TARGET, *flags):
            for pair in args.pairs[begin:] + args.pairs[:begin]:
                with results.catch_errors(f"{delay} ms: {pair}", peer=pair == f"{THEIRS}-{THEIRS}"):
                    results.add({"delay_ms": delay, "pair": pair, "round": turn, "seconds": seconds(pair, args, file)})


def arguments():
    parser = argument_parser(__doc__)
    parser.prog = "bench/udt/files.py"
    parser.add_argument("--bytes", type=int, default=20_000_000, help="of a file (20000000)")
    parser.add_argument("--delays", type=comma_separated, default=["0.1", "1", "10"], metavar="MS,...", help="one way (0.1,1,10)")
    parser.add_argument("--loss", default="0", metavar="PERCENT", help="each way (0)")
    parser.add_argument("--queue", type=lambda text: ("--queue", text), default=(), help="of the path, as of `longhaul link` (its default)")
    parser.add_argument("--beside", metavar="PATH", help="another build of longhaul")
    parser.add_argument("--pairs", type=comma_separated, default=PAIRS, metavar="NAME-NAME,...", help=f"senders and receivers ({','.join(PAIRS)})")
    parser.set_defaults(out=ROOT / "out/bench/udt-files")
    return parse_args(parser, delays=["1"])


def main():
    args = arguments()
    run_in_namespaces()
    results = Results(args)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        args.libudt = directory / "libudt"
        peer = ROOT / "crates/udt/tests/udt/libudt/peer.cpp"
        run_command("c++", "-std=c++17", "-O2", "-o", args.libudt, peer, "-ludt", "-lpthread")
        file = File(directory / "from", directory / "to", args.bytes)
        with open("/dev/urandom", "rb") as random:
            file.source.write_bytes(random.read(args.bytes))
        for turn in range(args.rounds):
            a_round(args, results, turn, file)
    lines = ((f"{delay} ms", pair.replace("-", " → "), median_range(rows, "seconds", ".2f")) for (delay, pair), rows in group_by(results.rows, "delay_ms", "pair"))
    return results.finish(table(("delay, one way", "from → to", "s: median (least–most)"), lines))


if __name__ == "__main__":
    sys.exit(main())
