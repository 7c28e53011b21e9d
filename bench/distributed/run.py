#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several hosts of either side at one copy, `longhaul copy --distributed`, beside one pair of them.

    bench/distributed/run.py [--hosts 3] [--rate 100] [--mb 400] [--rounds 5] [--work DIR]

Namespaces on one switch, each of which sends at most --rate Mbit/s and has a directory of its own as its disk, but for the
sources, which have one in common. One file of --mb: from one host to one, spread over --hosts, moved on to as many others, gathered from
those by one. Each is timed until the command ends, when all is synced; what was gathered is compared by SHA-256. The table has
medians, and those of the ratios to the one pair's of the same round.

Needs root. It leaves nothing behind but DIR.
"""
import contextlib, hashlib, pathlib, random, shutil, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import ProgramError, hosts, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, parse_args, table

NETWORK = "10.79.0"
STEPS = ("one pair", "spread", "moved on", "gathered")


class Switch:
    """Sources are s1…, those that keep shares d1… and e1…, the one where all comes together is t1."""

    def __init__(self, args, directory):
        self.args, self.directory, self.disk, self.ssh = args, directory, directory / "disk", directory / "ssh"
        self.names = [f"{side}{n + 1}" for side in "sde" for n in range(args.hosts)] + ["t1"]

    @contextlib.contextmanager
    def up(self):
        with hosts("switch", *self.names):
            run_command("ip", "-n", "switch", "link", "add", "switch", "up", "type", "bridge")
            self.disk.mkdir()
            for number, name in enumerate(self.names, 1):
                self.plug(name, f"{NETWORK}.{number}/24")
            addresses = "".join(f"{name}) at={NETWORK}.{n} ;;\n" for n, name in enumerate(self.names, 1))
            self.ssh.write_text(
                f"#!/bin/sh\nhost=$2\nshift 2\ncase $host in\n{addresses}esac\n"
                f"SSH_CONNECTION=\"{NETWORK}.254 1 $at 22\" exec nsenter --net=/run/netns/$host unshare --mount "
                f"sh -c 'mount --bind \"$0\" {self.disk}; exec \"$@\"' {self.directory}/disks/$host \"$@\"\n")
            self.ssh.chmod(0o755)
            yield self

    def plug(self, name, address):
        run_command("ip", "-n", "switch", "link", "add", name, "type", "veth", "peer", "name", "wire", "netns", name)
        run_command("ip", "-n", "switch", "link", "set", name, "up", "master", "switch")
        run_command("ip", "-n", name, "addr", "add", address, "dev", "wire")
        run_command("ip", "-n", name, "link", "set", "wire", "up")
        run_command("tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf", "rate", f"{self.args.rate}mbit", "burst", "256kb", "latency", "50ms")
        (self.directory / "disks" / name).mkdir(parents=True)

    def copy(self, flags, sources, targets):
        """Seconds that it takes."""
        began = time.monotonic()
        run_command(*netns_exec("t1", self.args.longhaul, "copy", "--quiet", "--streams", "4", *flags, "--ssh", self.ssh,
                     "--remote-program", self.args.longhaul, sources, targets))
        return time.monotonic() - began

    def each(self, side):
        return ",".join(name for name in self.names if name[0] == side)

    def forget(self):
        for name in self.names:
            shutil.rmtree(self.directory / "disks" / name)
            (self.directory / "disks" / name).mkdir()


def make(path, megabytes):
    digest, dice = hashlib.sha256(), random.Random(7)
    path.parent.mkdir()
    with open(path, "wb") as out:
        for _ in range(megabytes):
            block = dice.randbytes(1_000_000)
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def a_round(switch, source, digest):
    disk, spread, seconds = switch.disk, ["--distributed", "target", "--stripe", "16MB"], {}
    switch.forget()
    seconds["one pair"] = switch.copy([], f"s1:{source}", f"d1:{disk}/alone")
    switch.forget()
    seconds["spread"] = switch.copy(spread, f"{switch.each('s')}:{source}", f"{switch.each('d')}:{disk}")
    seconds["moved on"] = switch.copy(["--distributed", "both"], f"{switch.each('d')}:{disk}/", f"{switch.each('e')}:{disk}")
    seconds["gathered"] = switch.copy(["--distributed", "source"], f"{switch.each('e')}:{disk}/", f"t1:{disk}")
    with open(switch.directory / "disks/t1/file", "rb") as came:
        if hashlib.file_digest(came, "sha256").hexdigest() != digest:
            raise ProgramError("what was gathered is not what was spread")
    return seconds


def lines(args, rows):
    for step in STEPS if rows else ():
        seconds = statistics.median(row[step] for row in rows)
        ratio = statistics.median(row["one pair"] / row[step] for row in rows)
        many = "" if step == "one pair" else f", {args.hosts} hosts" + " a side" * (step == "moved on")
        yield step + many, f"{seconds:.1f}", f"{args.mb * 8 / seconds:.0f}", f"{ratio:.2f}"


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=3, choices=range(2, 9), metavar="2-8", help="of each side (3)")
    parser.add_argument("--rate", type=int, default=100, help="Mbit/s that each sends at most (100)")
    parser.add_argument("--mb", type=int, default=400, help="the file (400)")
    parser.add_argument("--work", type=pathlib.Path, default="/var/tmp", metavar="DIR", help="where files are copied (/var/tmp)")
    args = parse_args(parser, mb=40)
    directory = pathlib.Path(run_in_namespaces(lambda: tempfile.TemporaryDirectory(prefix="longhaul-bench-distributed-", dir=args.work)))
    results = Results(args)
    source = directory / "source/file"
    digest = make(source, args.mb)
    with Switch(args, directory).up() as switch:
        for turn in range(args.rounds):
            with results.catch_errors(f"round {turn + 1}"):
                results.add(a_round(switch, source, digest))
    return results.finish(table([f"{args.mb} MB, hosts that send {args.rate} Mbit/s", "seconds", "Mbit/s", "times one pair's rate"],
                               lines(args, results.rows)))


if __name__ == "__main__":
    sys.exit(main())
