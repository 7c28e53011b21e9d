#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul relay beside other relays, in one run, alternating.

    bench/relay/run.py [--quick] [--only bulk,echo,...] [--out DIR]

Three network namespaces, client - relay - server, joined by veth. Each relay that is found on this
machine is started by turns in its best documented configuration; `direct` is no relay at all.
Writes DIR/raw.json and prints a table of medians and of ratios to the best other relay.
Needs root. Debian: apt-get install libnginx-mod-stream haproxy dante-server squid; REALM=path and GOST=path add
those two.
"""
import argparse, json, os, pathlib, platform, resource, shutil, signal, statistics, subprocess, sys
import tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
LOAD, LONGHAUL = TARGET / "examples" / "relay_load", TARGET / "longhaul"
TAG = f"lhb{os.getpid()}"
CLIENT, RELAY, SERVER = f"{TAG}c", f"{TAG}r", f"{TAG}s"
NEAR, FAR, ORIGIN = "10.77.1.2", "10.77.2.1", "10.77.2.2:7001"
PORT = 7000
# A relay has two descriptors a connection: the hard limit may have no room for 10,000.
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
IDLE = min(10_000, (DESCRIPTORS - 800) // 2)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Testbed:
    """The namespaces and the origin; gone after the block, whatever happens in it."""

    def __enter__(self):
        for ns in (CLIENT, RELAY, SERVER):
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
        self.wire(CLIENT, "10.77.1.1/30", RELAY, f"{NEAR}/30", "near")
        self.wire(RELAY, f"{FAR}/30", SERVER, "10.77.2.2/30", "far")
        ip("-n", CLIENT, "route", "add", "default", "via", NEAR)
        ip("-n", SERVER, "route", "add", "default", "via", FAR)
        within(RELAY, ["sysctl", "-qw", "net.ipv4.ip_forward=1"])
        for ns in (CLIENT, RELAY, SERVER):
            within(ns, ["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535",
                        "net.ipv4.tcp_tw_reuse=1", "net.core.somaxconn=8192"])
        self.origin = start(SERVER, [LOAD, "serve", ORIGIN])
        time.sleep(0.3)
        return self

    @staticmethod
    def wire(left, left_address, right, right_address, name):
        ip("link", "add", f"{TAG}a", "netns", left, "type", "veth", "peer", "name", f"{TAG}b",
           "netns", right)
        for ns, device, address in ((left, f"{TAG}a", left_address), (right, f"{TAG}b", right_address)):
            ip("-n", ns, "link", "set", device, "name", name)
            ip("-n", ns, "address", "add", address, "dev", name)
            ip("-n", ns, "link", "set", name, "up")

    def __exit__(self, *_):
        stop(self.origin)
        for ns in (CLIENT, RELAY, SERVER):
            subprocess.run(["ip", "netns", "del", ns], check=False)


def in_ns(ns, command):
    return ["ip", "netns", "exec", ns, *map(str, command)]


def within(ns, command):
    return subprocess.run(in_ns(ns, command), check=True, capture_output=True, text=True).stdout


def start(ns, command):
    return subprocess.Popen(in_ns(ns, command), start_new_session=True, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def stop(process):
    """Ends the process and what it started: they are a session of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def write(directory, name, text):
    path = directory / name
    path.write_text(text)
    return path


# Each relay: how its clients speak, and the command that starts it. `directory` is its own.

def longhaul(_):
    return "plain", [LONGHAUL, "relay", "--forward", f"{NEAR}:{PORT}={ORIGIN}",
                     "--allow-from", "10.77.1.0/30"]


def longhaul_socks5(_):
    return "socks5", [LONGHAUL, "relay", "--socks5", f"{NEAR}:{PORT}", "--allow-from", "10.77.1.0/30"]


def longhaul_http(_):
    return "connect", [LONGHAUL, "relay", "--http", f"{NEAR}:{PORT}", "--allow-from", "10.77.1.0/30"]


def nginx(directory):
    modules = "/usr/lib/nginx/modules/ngx_stream_module.so"
    load = f"load_module {modules};" if os.path.exists(modules) else ""
    config = write(directory, "nginx.conf", f"""{load}
daemon off; pid {directory}/pid; worker_processes 2; worker_rlimit_nofile {DESCRIPTORS}; error_log stderr;
events {{ worker_connections 32768; }}
stream {{ server {{ listen {NEAR}:{PORT} reuseport backlog=4096; proxy_pass {ORIGIN};
  proxy_buffer_size 256k; tcp_nodelay on; proxy_timeout 1h; }} }}
""")
    return "plain", ["nginx", "-c", config]


def haproxy(directory):
    config = write(directory, "haproxy.cfg", f"""
global
    nbthread 2
    maxconn {IDLE + 20}
    maxpipes 64
    tune.bufsize 65536
    tune.pipesize 1048576
defaults
    mode tcp
    option splice-auto
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen relay
    bind {NEAR}:{PORT} backlog 4096
    server origin {ORIGIN}
""")
    return "plain", ["haproxy", "-db", "-f", config]


def dante(directory):
    config = write(directory, "danted.conf", f"""
logoutput: {directory}/log
internal: {NEAR} port = {PORT}
external: {FAR}
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 10.77.1.0/30 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
""")
    return "socks5", ["danted", "-f", config, "-p", directory / "pid", "-N", "2"]


def squid(directory):
    config = write(directory, "squid.conf", f"""
http_port {NEAR}:{PORT}
acl all_ports port 1-65535
acl CONNECT method CONNECT
http_access allow all
cache deny all
access_log none
cache_log {directory}/cache.log
cache_store_log none
pid_filename {directory}/pid
coredump_dir {directory}
max_filedescriptors {DESCRIPTORS}
read_ahead_gap 1 MB
workers 1
shutdown_lifetime 0 seconds
pinger_enable off
""")
    return "connect", ["squid", "-N", "-n", TAG, "-f", config]


def realm(_):
    return "plain", [os.environ["REALM"], "-l", f"{NEAR}:{PORT}", "-r", ORIGIN]


def gost(_):
    return "plain", [os.environ["GOST"], "-L", f"tcp://{NEAR}:{PORT}/{ORIGIN}"]


def present():
    """The relays of this run by name."""
    found = {"longhaul": longhaul}
    for relay, program in ((nginx, "nginx"), (haproxy, "haproxy"), (dante, "danted"), (squid, "squid")):
        if shutil.which(program):
            found[relay.__name__] = relay
        else:
            print(f"{relay.__name__}: not on this machine, left out", file=sys.stderr)
    found |= {r.__name__: r for r in (realm, gost) if r.__name__.upper() in os.environ}
    return found | {"longhaul socks5": longhaul_socks5, "longhaul connect": longhaul_http}


def tree(root):
    """The process and all that it has started."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" (", 1)
            parents.setdefault(int(rest.rsplit(") ", 1)[1].split()[1]), []).append(int(pid))
        except OSError:
            pass
    pids, todo = [], [root]
    while todo:
        pids.append(todo.pop())
        todo += parents.get(pids[-1], [])
    return pids


def cpu_seconds(pids):
    """User and system time, ended children included."""
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            total += sum(map(int, fields[11:15]))
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def private_bytes(pids):
    total = 0
    for pid in pids:
        try:
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def machine_used():
    fields = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    kib = lambda key: int(fields[key].split()[0])
    return 1024 * (kib("MemTotal") - kib("MemAvailable"))


class Subject:
    """One relay, running."""

    def __init__(self, name, relay):
        self.name, self.relay, self.process = name, relay, None

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{TAG}-"))
        self.directory.chmod(0o777)
        if self.relay:
            self.via, command = self.relay(self.directory)
            self.process = start(RELAY, command)
            self.address = f"{NEAR}:{PORT}"
            self.wait()
        else:
            self.via, self.address = "plain", ORIGIN
        return self

    def wait(self):
        for _ in range(100):
            listening = within(RELAY, ["ss", "-Hltn", f"sport = :{PORT}"])
            if listening.strip():
                return
            time.sleep(0.1)
        raise SystemExit(f"{self.name} did not start: {self.process.args}")

    def pids(self):
        return tree(self.process.pid) if self.process else []

    def load(self, job, **flags):
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return in_ns(CLIENT, [LOAD, job, "--via", self.via, "--relay", self.address, "--to", ORIGIN, *words])

    def ask(self, job, **flags):
        done = subprocess.run(self.load(job, **flags), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"{self.name} {job}: {done.stderr}")
        return json.loads(done.stdout)

    def __exit__(self, *_):
        if self.process:
            stop(self.process)
        shutil.rmtree(self.directory, ignore_errors=True)


def bulk(flows):
    def measure(subject, quick):
        before = cpu_seconds(subject.pids())
        got = subject.ask("bulk", flows=flows, seconds=1 if quick else 3)
        cpu = cpu_seconds(subject.pids()) - before
        figures = {"Gbit/s": got["bytes"] * 8e-9 / got["seconds"]}
        return figures | ({"CPU s/GB": cpu / (got["bytes"] * 1e-9)} if subject.process else {})
    return measure


def connects(subject, quick):
    got = subject.ask("connects", flows=16, seconds=1 if quick else 3)
    return {"connects/s": got["connections"] / got["seconds"]}


def echo(subject, quick):
    got = subject.ask("echo", count=2000 if quick else 20000)
    return {"p50 us": got["p50_ns"] / 1000, "p99 us": got["p99_ns"] / 1000}


def idle(subject, quick):
    count = 1000 if quick else IDLE
    own, all_ = private_bytes(subject.pids()), machine_used()
    client = subprocess.Popen(subject.load("idle", count=count), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = client.stdout.readline()
    held = json.loads(line)["open"] if line else 0
    time.sleep(1)
    figures = {"held": held}
    if held:
        figures |= {"relay B/conn": (private_bytes(subject.pids()) - own) / held,
                    "machine B/conn": (machine_used() - all_) / held}
    client.stdin.close()
    client.wait(timeout=60)
    return figures


CASES = {"bulk1": (bulk(1), 5), "bulk8": (bulk(8), 5), "connects": (connects, 5), "echo": (echo, 5),
         "idle": (idle, 1)}
# Higher is better for these, lower for the rest.
RISING = {"Gbit/s", "connects/s", "held"}


def run(cases, quick):
    relays = present()
    raw = []
    for case in cases:
        measure, rounds = CASES[case]
        subjects = {"direct": None} | relays
        for turn in range(1 if quick else rounds):
            for name, relay in subjects.items():
                with Subject(name, relay) as subject:
                    try:
                        figures = measure(subject, quick)
                    except (SystemExit, subprocess.TimeoutExpired, ValueError) as error:
                        print(f"{case} {name}: {error}", file=sys.stderr)
                        continue
                raw.append({"case": case, "relay": name, "turn": turn, **figures})
                print(f"  {case} {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in figures.items()),
                      file=sys.stderr, flush=True)
    return raw


def table(raw):
    for case in dict.fromkeys(row["case"] for row in raw):
        rows = [row for row in raw if row["case"] == case]
        keys = [k for k in dict.fromkeys(k for r in rows for k in r) if k not in ("case", "relay", "turn")]
        medians = {}
        for name in dict.fromkeys(row["relay"] for row in rows):
            mine = [row for row in rows if row["relay"] == name]
            medians[name] = {k: statistics.median(r[k] for r in mine if k in r)
                             for k in keys if any(k in r for r in mine)}
        print(f"\n{case:18}" + "".join(f"{k:>16}" for k in keys))
        for name, figures in medians.items():
            print(f"{name:18}" + "".join(f"{figures[k]:16.4g}" if k in figures else " " * 16 for k in keys))
        others = {n: f for n, f in medians.items() if n != "direct" and not n.startswith("longhaul")}
        if not others:
            continue
        line = "longhaul / best   "
        for key in keys:
            best = (max if key in RISING else min)(f[key] for f in others.values() if key in f)
            line += f"{medians['longhaul'].get(key, float('nan')) / best:16.3f}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: does it work?")
    parser.add_argument("--only", default=",".join(CASES), help="cases, of " + ",".join(CASES))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/bench/relay")
    args = parser.parse_args()
    cases = args.only.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        parser.error(f"no case is called {unknown[0]}; there are: {', '.join(CASES)}")
    if os.geteuid() != 0:
        print("bench/relay needs root for network namespaces", file=sys.stderr)
        sys.exit(3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with Testbed():
        raw = run(cases, args.quick)
    args.out.mkdir(parents=True, exist_ok=True)
    facts = {"kernel": platform.release(), "cpus": os.cpu_count(), "load": os.getloadavg()}
    (args.out / "raw.json").write_text(json.dumps({"host": facts, "rows": raw}, indent=1))
    table(raw)


if __name__ == "__main__":
    main()
