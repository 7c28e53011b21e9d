#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""`longhaul copy --distributed` with several hosts on each side, compared with one pair of hosts.

    bench/distributed/run.py [--hosts 3] [--rate 100] [--mb 400] [--rounds 5] [--work DIR]

The hosts are network namespaces on one switch. Each sends at most --rate Mbit/s. Each has a directory as its own disk, except
the sources, which share one. One file of --mb is copied in four steps: from one host to one (`one pair`), from the sources to
--hosts others (`distribute`), from these to as many others (`host to host`), and from those to one (`gather`). A step ends
with the command, when all data are synced. The gathered file is compared by SHA-256. The table has medians of the rounds, and
the median ratio to the pair of the same round.

Needs root. It leaves nothing behind except DIR.
"""
import contextlib, hashlib, pathlib, random, shutil, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import ProgramError, hosts, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, parse_args, table

NETWORK = "10.79.0"
STEPS = ("one pair", "distribute", "host to host", "gather")


class Testbed:
    """Hosts on a switch: sources s1…, first targets d1…, second targets e1…, and t1, which gathers."""

    def __init__(self, args, directory):
        self.args, self.directory, self.disk, self.ssh = args, directory, directory / "disk", directory / "ssh"
        self.names = [f"{side}{n + 1}" for side in "sde" for n in range(args.hosts)] + ["t1"]

    @contextlib.contextmanager
    def running(self):
        """Creates the hosts for the block."""
        with hosts("switch", *self.names):
            run_command("ip", "-n", "switch", "link", "add", "switch", "up", "type", "bridge")
            self.disk.mkdir()
            for number, name in enumerate(self.names, 1):
                self.add_host(name, f"{NETWORK}.{number}/24")
            addresses = "".join(f"{name}) at={NETWORK}.{n} ;;\n" for n, name in enumerate(self.names, 1))
            self.ssh.write_text(
                f"#!/bin/sh\nhost=$2\nshift 2\ncase $host in\n{addresses}esac\n"
                f"SSH_CONNECTION=\"{NETWORK}.254 1 $at 22\" exec nsenter --net=/run/netns/$host unshare --mount "
                f"sh -c 'mount --bind \"$0\" {self.disk}; exec \"$@\"' {self.directory}/disks/$host \"$@\"\n")
            self.ssh.chmod(0o755)
            yield self

    def add_host(self, name, address):
        run_command("ip", "-n", "switch", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        run_command("ip", "-n", "switch", "link", "set", name, "up", "master", "switch")
        run_command("ip", "-n", name, "addr", "add", address, "dev", "eth0")
        run_command("ip", "-n", name, "link", "set", "eth0", "up")
        run_command("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{self.args.rate}mbit", "burst", "256kb", "latency", "50ms")
        (self.directory / "disks" / name).mkdir(parents=True)

    def copy(self, flags, sources, targets):
        """Copies by longhaul and returns the seconds that it took."""
        started = time.monotonic()
        run_command(*netns_exec("t1", self.args.longhaul, "copy", "--quiet", "--streams", "4", *flags, "--ssh", self.ssh,
                     "--remote-program", self.args.longhaul, sources, targets))
        return time.monotonic() - started

    def host_list(self, side):
        """The hosts of one side as NAME,NAME,..."""
        return ",".join(name for name in self.names if name[0] == side)

    def clear_disks(self):
        for name in self.names:
            shutil.rmtree(self.directory / "disks" / name)
            (self.directory / "disks" / name).mkdir()


def make_file(path, megabytes):
    """Writes a file of random bytes and returns its SHA-256."""
    digest, generator = hashlib.sha256(), random.Random(7)
    path.parent.mkdir()
    with open(path, "wb") as out:
        for _ in range(megabytes):
            block = generator.randbytes(1_000_000)
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def run_round(testbed, source, digest):
    """Runs the four steps. Returns the seconds of each."""
    disk, distribute, seconds = testbed.disk, ["--distributed", "target", "--stripe", "16MB"], {}
    testbed.clear_disks()
    seconds["one pair"] = testbed.copy([], f"s1:{source}", f"d1:{disk}/alone")
    testbed.clear_disks()
    seconds["distribute"] = testbed.copy(distribute, f"{testbed.host_list('s')}:{source}", f"{testbed.host_list('d')}:{disk}")
    seconds["host to host"] = testbed.copy(["--distributed", "both"], f"{testbed.host_list('d')}:{disk}/", f"{testbed.host_list('e')}:{disk}")
    seconds["gather"] = testbed.copy(["--distributed", "source"], f"{testbed.host_list('e')}:{disk}/", f"t1:{disk}")
    with open(testbed.directory / "disks/t1/file", "rb") as gathered:
        if hashlib.file_digest(gathered, "sha256").hexdigest() != digest:
            raise ProgramError("the gathered file differs from the source")
    return seconds


def lines(args, rows):
    for step in STEPS if rows else ():
        seconds = statistics.median(row[step] for row in rows)
        ratio = statistics.median(row["one pair"] / row[step] for row in rows)
        hosts_text = "" if step == "one pair" else f", {args.hosts} hosts" + " a side" * (step == "host to host")
        yield step + hosts_text, f"{seconds:.1f}", f"{args.mb * 8 / seconds:.0f}", f"{ratio:.2f}"


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=3, choices=range(2, 9), metavar="2-8", help="hosts on each side (3)")
    parser.add_argument("--rate", type=int, default=100, help="sending rate of each host, Mbit/s (100)")
    parser.add_argument("--mb", type=int, default=400, help="size of the file, MB (400)")
    parser.add_argument("--work", type=pathlib.Path, default="/var/tmp", metavar="DIR", help="directory for the disks (/var/tmp)")
    args = parse_args(parser, mb=40)
    directory = pathlib.Path(run_in_namespaces(lambda: tempfile.TemporaryDirectory(prefix="longhaul-bench-distributed-", dir=args.work)))
    results = Results(args)
    source = directory / "source/file"
    digest = make_file(source, args.mb)
    with Testbed(args, directory).running() as testbed:
        for round_ in range(args.rounds):
            with results.catch_errors(f"round {round_ + 1}"):
                results.add(run_round(testbed, source, digest))
    return results.finish(table([f"{args.mb} MB, {args.rate} Mbit/s per host", "seconds", "Mbit/s", "rate over one pair's"],
                               lines(args, results.rows)))


if __name__ == "__main__":
    sys.exit(main())
