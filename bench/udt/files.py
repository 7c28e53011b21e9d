#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""File transfers between longhaul udt and libudt 4.11, over short paths on which the sender waits for every ACK.

    bench/udt/files.py [--bytes 20000000] [--delays 0.1,1,10] [--loss 0] [--queue 1bdp] [--pairs longhaul-libudt,...] [--baseline PATH]

Two network namespaces are joined by `longhaul link` at 100 Mbit/s with each of these one-way delays, in ms. Both programs
have their default settings. libudt runs in crates/udt/tests/udt/libudt/peer.cpp, which sends and receives as its own example
programs do. The time is from the sender's start until the receiver's file has all bytes. `--baseline` is another build of
longhaul, called `baseline` in pairs.

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
LONGHAUL, LIBUDT, BASELINE = "longhaul", "libudt", "baseline"
PAIRS = [f"{sender}-{receiver}" for sender in (LONGHAUL, LIBUDT) for receiver in (LONGHAUL, LIBUDT)]
# Time limit of a transfer.
TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class File:
    """The file that is sent, and the path where it arrives."""
    source: pathlib.Path
    target: pathlib.Path
    bytes: int

    def is_complete(self):
        return self.target.exists() and self.target.stat().st_size == self.bytes

    def is_correct(self):
        return self.target.read_bytes() == self.source.read_bytes()


def binary(name, args):
    return args.baseline if name == BASELINE else args.longhaul


@contextlib.contextmanager
def receiver(name, args, file):
    if name != LIBUDT:
        with Program(TARGET[0], binary(name, args), "udt", "receive", file.target, ready="listening"):
            yield
        return
    with file.target.open("wb"):
        command = f'exec "{args.libudt}" receive stream listen {PORT} 0.0.0.0 0 >"{file.target}"'
        with Program(TARGET[0], "sh", "-c", command, ready="ready"):
            yield


def sender(name, args, file):
    if name != LIBUDT:
        return Program(SOURCE[0], binary(name, args), "udt", "send", file.source, f"{ADDRESS}:{PORT}")
    command = f'exec "{args.libudt}" send stream connect 0 {ADDRESS} {PORT} <"{file.source}"'
    return Program(SOURCE[0], "sh", "-c", command)


def transfer(pair, args, file):
    """Sends the file from one program of the pair to the other. Returns the seconds."""
    file.target.unlink(missing_ok=True)
    sending, receiving = pair.split("-")
    with receiver(receiving, args, file):
        started = time.monotonic()
        with sender(sending, args, file):
            while not file.is_complete():
                if time.monotonic() > started + TIMEOUT_S:
                    arrived = file.target.stat().st_size if file.target.exists() else 0
                    raise ProgramError(f"not done in {TIMEOUT_S} s: {arrived} bytes")
                time.sleep(0.002)
            elapsed_s = time.monotonic() - started
    if not file.is_correct():
        raise ProgramError("the received file differs")
    return elapsed_s


def run_round(args, results, round_, file):
    """Measures all pairs over all paths. Each round begins with the next pair."""
    first = round_ % len(args.pairs)
    for delay in args.delays:
        flags = ("--rate", RATE, "--delay", f"{delay}ms", "--loss", f"{args.loss}%", *args.queue)
        with hosts(SOURCE[0], TARGET[0]), emulated_link(args.longhaul, SOURCE, TARGET, *flags):
            for pair in args.pairs[first:] + args.pairs[:first]:
                with results.catch_errors(f"{delay} ms: {pair}", peer=pair == f"{LIBUDT}-{LIBUDT}"):
                    results.add({"delay_ms": delay, "pair": pair, "round": round_, "seconds": transfer(pair, args, file)})


def parse_arguments():
    parser = argument_parser(__doc__)
    parser.prog = "bench/udt/files.py"
    parser.add_argument("--bytes", type=int, default=20_000_000, help="size of the file (20000000)")
    parser.add_argument("--delays", type=comma_separated, default=["0.1", "1", "10"], metavar="MS,...", help="one-way delays (0.1,1,10)")
    parser.add_argument("--loss", default="0", metavar="PERCENT", help="loss in each direction (0)")
    parser.add_argument("--queue", type=lambda text: ("--queue", text), default=(), help="queue of the path, as for `longhaul link` (its default)")
    parser.add_argument("--baseline", metavar="PATH", help="another build of longhaul")
    parser.add_argument("--pairs", type=comma_separated, default=PAIRS, metavar="NAME-NAME,...", help=f"senders and receivers ({','.join(PAIRS)})")
    parser.set_defaults(out=ROOT / "out/bench/udt-files")
    return parse_args(parser, delays=["1"])


def main():
    args = parse_arguments()
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
        for round_ in range(args.rounds):
            run_round(args, results, round_, file)
    lines = ((f"{delay} ms", pair.replace("-", " → "), median_range(rows, "seconds", ".2f")) for (delay, pair), rows in group_by(results.rows, "delay_ms", "pair"))
    return results.finish(table(("delay, one way", "from → to", "s: median (min–max)"), lines))


if __name__ == "__main__":
    sys.exit(main())
