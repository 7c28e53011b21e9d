#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several hosts of either side at one copy, `longhaul copy --apart`, beside one pair of them.

    bench/copy/hosts.py [--hosts 3] [--rate 100] [--mb 400] [--rounds 5] [--longhaul PATH] [--out DIR]

Namespaces on one switch, each of which sends at most --rate Mbit/s and has a directory of its own as its disk, but for the
sources, which have one in common. One file of --mb: from one host to one, spread over --hosts, moved on to as many others, gathered from
those by one. Each is timed until the command ends, when all is synced; what was gathered is compared by SHA-256. DIR/hosts.jsonl has a line
a round, DIR/hosts.md the medians, and their ratios to the one pair's of the same round.

Needs root. It leaves nothing behind but DIR.
"""
import argparse, hashlib, json, os, pathlib, random, shutil, statistics, subprocess, tempfile, time

NETWORK = "10.79.0"
STEPS = ("one pair", "spread", "moved on", "gathered")


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--hosts", type=int, default=3, choices=range(2, 9), metavar="2-8", help="of each side (3)")
    parse.add_argument("--rate", type=int, default=100, help="Mbit/s that each sends at most (100)")
    parse.add_argument("--mb", type=int, default=400, help="the file (400)")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--longhaul", type=pathlib.Path, default=pathlib.Path("target/release/longhaul"))
    parse.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench/copy"))
    parse.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="where files are copied (/var/tmp)")
    given = parse.parse_args()
    given.longhaul = given.longhaul.resolve()
    if not os.access(given.longhaul, os.X_OK):
        parse.error(f"no program at {given.longhaul}: build it (scripts/cargo build --release) or give --longhaul PATH")
    if os.geteuid() != 0:
        parse.error("needs root, for namespaces")
    return given


class Hosts:
    """Up within the block. Sources are s1…, those that keep shares d1… and e1…, the one where all comes together is t1."""

    def __init__(self, given, directory):
        self.given, self.directory = given, directory
        self.prefix = f"lh-hosts-{os.getpid()}"
        self.names = [f"{side}{n + 1}" for side in "sde" for n in range(given.hosts)] + ["t1"]

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        ip("netns", "add", f"{self.prefix}-switch")
        ip("-n", f"{self.prefix}-switch", "link", "add", "switch", "up", "type", "bridge")
        for number, name in enumerate(self.names):
            self.add(name, f"{NETWORK}.{number + 1}")
        (self.directory / "disk").mkdir()
        self.ssh = self.directory / "ssh"
        addresses = "".join(f"{name}) at={NETWORK}.{n + 1} ;;\n" for n, name in enumerate(self.names))
        self.ssh.write_text(
            f"#!/bin/sh\nhost=$2\nshift 2\ncase $host in\n{addresses}esac\n"
            f"SSH_CONNECTION=\"{NETWORK}.254 1 $at 22\" exec nsenter --net=/run/netns/{self.prefix}-$host unshare --mount "
            f"sh -c 'mount --bind \"$0\" {self.directory}/disk; exec \"$@\"' {self.directory}/disks/$host \"$@\"\n")
        self.ssh.chmod(0o755)

    def add(self, name, address):
        host, switch = f"{self.prefix}-{name}", f"{self.prefix}-switch"
        ip("netns", "add", host)
        ip("-n", host, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "wire", "netns", host)
        ip("-n", switch, "link", "set", name, "up", "master", "switch")
        ip("-n", host, "addr", "add", f"{address}/24", "dev", "wire")
        ip("-n", host, "link", "set", "wire", "up")
        subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "wire", "root", "tbf",
                        "rate", f"{self.given.rate}mbit", "burst", "256kb", "latency", "50ms"], check=True)
        (self.directory / "disks" / name).mkdir(parents=True)

    def copy(self, flags, sources, targets):
        """Seconds that it takes."""
        command = ["ip", "netns", "exec", f"{self.prefix}-t1", self.given.longhaul, "copy", "--quiet", "--streams", "4", *flags,
                   "--ssh", self.ssh, "--remote-program", self.given.longhaul, sources, targets]
        began = time.monotonic()
        subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL)
        return time.monotonic() - began

    def each(self, side):
        return ",".join(name for name in self.names if name[0] == side)

    def forget(self):
        for name in self.names:
            shutil.rmtree(self.directory / "disks" / name)
            (self.directory / "disks" / name).mkdir()

    def __exit__(self, *_):
        for name in [*self.names, "switch"]:
            subprocess.run(["ip", "netns", "del", f"{self.prefix}-{name}"], stderr=subprocess.DEVNULL)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def make(path, megabytes):
    digest, dice = hashlib.sha256(), random.Random(7)
    with open(path, "wb") as out:
        for _ in range(megabytes):
            block = dice.randbytes(1_000_000)
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def a_round(hosts, digest):
    disk, source = hosts.directory / "disk", hosts.directory / "source" / "file"
    spread, seconds = ["--apart", "target", "--stripe", "16MB"], {}
    seconds["one pair"] = hosts.copy([], f"s1:{source}", f"d1:{disk}/alone")
    hosts.forget()
    seconds["spread"] = hosts.copy(spread, f"{hosts.each('s')}:{source}", f"{hosts.each('d')}:{disk}")
    seconds["moved on"] = hosts.copy(["--apart", "both"], f"{hosts.each('d')}:{disk}/", f"{hosts.each('e')}:{disk}")
    seconds["gathered"] = hosts.copy(["--apart", "source"], f"{hosts.each('e')}:{disk}/", f"t1:{disk}")
    came = hashlib.file_digest(open(hosts.directory / "disks" / "t1" / "file", "rb"), "sha256").hexdigest()
    if came != digest:
        raise SystemExit("hosts.py: what was gathered is not what was spread")
    hosts.forget()
    return seconds


def table(given, rounds):
    lines = [f"One file of {given.mb} MB, hosts that send at most {given.rate} Mbit/s each, medians of {len(rounds)}:\n",
             "| | seconds | Mbit/s | times one pair's rate |", "|---|---:|---:|---:|"]
    for step in STEPS:
        seconds = statistics.median(one[step] for one in rounds)
        ratio = statistics.median(one["one pair"] / one[step] for one in rounds)
        name = step if step == "one pair" else f"{step}, {given.hosts} hosts a side" if step == "moved on" else f"{step}, {given.hosts} hosts"
        lines.append(f"| {name} | {seconds:.1f} | {given.mb * 8 / seconds:.0f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    given = options()
    given.out.mkdir(parents=True, exist_ok=True)
    rounds = []
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-hosts-", dir=given.work) as directory:
        directory = pathlib.Path(directory)
        (directory / "source").mkdir()
        digest = make(directory / "source" / "file", given.mb)
        with Hosts(given, directory) as hosts, open(given.out / "hosts.jsonl", "w") as record:
            for number in range(given.rounds):
                rounds.append(a_round(hosts, digest))
                record.write(json.dumps(rounds[-1]) + "\n")
                record.flush()
                print(f"round {number + 1}: " + ", ".join(f"{step} {rounds[-1][step]:.1f} s" for step in STEPS), flush=True)
    (given.out / "hosts.md").write_text(table(given, rounds))
    print(table(given, rounds), end="")


if __name__ == "__main__":
    main()
