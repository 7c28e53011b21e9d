#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul relay beside other relays, in one run, alternating.

    bench/relay/run.py [--only bulk1,bulk8,connects,echo,idle,heads] [--rounds 5]

Three network namespaces, client - relay - server, joined by veth. Each relay that is found on this
machine is started by turns in its best documented configuration; `direct` is no relay at all. The tables
have medians, and ratios to the best other relay. `idle` takes one round; so does `heads`: what request heads
that come slowly cost longhaul in memory.

Needs root, and the example relay_load beside the release build. Debian: apt-get install libnginx-mod-stream haproxy
dante-server squid; REALM=path and GOST=path add those two.
"""
import contextlib, json, os, pathlib, resource, statistics, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import heads
from namespaces import Program, add_veth, hosts, netns_exec, run_command, run_in_namespaces, skip_benchmark
from results import RELEASE, Results, argument_parser, comma_separated, group_by, parse_args, table

LOAD = RELEASE / "examples/relay_load"
CLIENT, RELAY, SERVER = "client", "relay", "server"
NEAR, FAR, ORIGIN = "10.77.1.2", "10.77.2.1", "10.77.2.2:7001"
PORT = 7000
# A relay has two descriptors a connection: the hard limit may have no room for 10,000.
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
IDLE = min(10_000, (DESCRIPTORS - 800) // 2)
SYSCTLS = ["net.ipv4.ip_local_port_range=1024 65535", "net.ipv4.tcp_tw_reuse=1", "net.core.somaxconn=8192"]


@contextlib.contextmanager
def testbed():
    """The hosts, and the origin on the last one."""
    with hosts(CLIENT, RELAY, SERVER, sysctls=SYSCTLS):
        add_veth((CLIENT, "10.77.1.1/30"), (RELAY, f"{NEAR}/30"), device="near")
        add_veth((RELAY, f"{FAR}/30"), (SERVER, "10.77.2.2/30"), device="far")
        run_command("ip", "-n", CLIENT, "route", "add", "default", "via", NEAR)
        run_command("ip", "-n", SERVER, "route", "add", "default", "via", FAR)
        run_command(*netns_exec(RELAY, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        with Program(SERVER, LOAD, "serve", ORIGIN, ready=7001):
            yield


def write(directory, name, text):
    path = directory / name
    path.write_text(text)
    return path


# Each relay: how its clients speak, and the command that starts the program. `directory` is its own.

def longhaul(program, _):
    return "plain", [program, "relay", "--forward", f"{NEAR}:{PORT}={ORIGIN}",
                     "--allow-from", "10.77.1.0/30"]


def longhaul_socks5(program, _):
    return "socks5", [program, "relay", "--socks5", f"{NEAR}:{PORT}", "--allow-from", "10.77.1.0/30"]


def longhaul_http(program, _):
    return "connect", [program, "relay", "--http", f"{NEAR}:{PORT}", "--allow-from", "10.77.1.0/30"]


def nginx(program, directory):
    modules = "/usr/lib/nginx/modules/ngx_stream_module.so"
    load = f"load_module {modules};" if os.path.exists(modules) else ""
    config = write(directory, "nginx.conf", f"""{load}
daemon off; pid {directory}/pid; worker_processes 2; worker_rlimit_nofile {DESCRIPTORS}; error_log stderr;
events {{ worker_connections 32768; }}
stream {{ server {{ listen {NEAR}:{PORT} reuseport backlog=4096; proxy_pass {ORIGIN};
  proxy_buffer_size 256k; tcp_nodelay on; proxy_timeout 1h; }} }}
""")
    return "plain", [program, "-c", config]


def haproxy(program, directory):
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
    return "plain", [program, "-db", "-f", config]


def dante(program, directory):
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
    return "socks5", [program, "-f", config, "-p", directory / "pid", "-N", "2"]


def squid(program, directory):
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
    return "connect", [program, "-N", "-n", "longhaulbench", "-f", config]


def realm(program, _):
    return "plain", [program, "-l", f"{NEAR}:{PORT}", "-r", ORIGIN]


def gost(program, _):
    return "plain", [program, "-L", f"tcp://{NEAR}:{PORT}/{ORIGIN}"]


PEERS = {"nginx": (nginx, "nginx"), "haproxy": (haproxy, "haproxy"), "dante": (dante, "danted"), "squid": (squid, "squid"),
         "realm": (realm, os.environ.get("REALM", "realm")), "gost": (gost, os.environ.get("GOST", "gost"))}


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
    """One relay, running within the block."""

    def __init__(self, relay, program):
        self.relay, self.program, self.process = relay, program, None
        self.via, self.address = "plain", ORIGIN

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        if self.relay:
            with self.stack:
                directory = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
                directory.chmod(0o777)
                self.via, command = self.relay(self.program, directory)
                self.process = self.stack.enter_context(Program(RELAY, *command, ready=PORT))
                self.address = f"{NEAR}:{PORT}"
                self.stack = self.stack.pop_all()
        return self

    def pids(self):
        return tree(self.process.pid) if self.process else []

    def load(self, job, **flags):
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return netns_exec(CLIENT, LOAD, job, "--via", self.via, "--relay", self.address, "--to", ORIGIN, *words)

    def ask(self, job, **flags):
        return json.loads(run_command(*self.load(job, **flags), timeout=120))

    def __exit__(self, *_):
        self.stack.close()


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


CASES = {"bulk1": (bulk(1), 5), "bulk8": (bulk(8), 5), "connects": (connects, 5), "echo": (echo, 5), "idle": (idle, 1)}
# Higher is better for these, lower for the rest.
RISING = {"Gbit/s", "connects/s", "held"}


def run(results, args, case):
    measure, most = CASES[case]
    ours = {"direct": (None, None), "longhaul": (longhaul, args.longhaul)}
    subjects = ours | PEERS | {"longhaul socks5": (longhaul_socks5, args.longhaul), "longhaul connect": (longhaul_http, args.longhaul)}
    for turn in range(min(args.rounds, most)):
        for name in (name for name in subjects if name not in results.skipped):
            peer = name in PEERS
            with results.catch_errors(name, peer), Subject(*subjects[name]) as subject, results.catch_errors(f"{case}, {name}", peer):
                results.add({"case": case, "relay": name, "turn": turn, **measure(subject, args.quick)})


def lines(rows):
    for (case,), mine in group_by(rows, "case"):
        if case == "heads":
            yield from heads.table(mine)
            continue
        keys = [key for key in dict.fromkeys(key for row in mine for key in row) if key not in ("case", "relay", "turn", "load")]
        medians = {name: {key: statistics.median(row[key] for row in own if key in row) for key in keys if any(key in row for row in own)}
                   for (name,), own in group_by(mine, "relay")}
        shown = [(name, *(f"{found[key]:.4g}" if key in found else "" for key in keys)) for name, found in medians.items()]
        others = [found for name, found in medians.items() if name in PEERS]
        if others and "longhaul" in medians:
            best = {key: (max if key in RISING else min)((found[key] for found in others if key in found), default=0) for key in keys}
            shown.append(("longhaul / best", *(f"{medians['longhaul'].get(key, 0) / best[key]:.3f}" if best[key] else "" for key in keys)))
        yield ""
        yield from table([case, *keys], shown)


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=[*CASES, "heads"], metavar="CASE,...")
    args = parse_args(parser)
    if unknown := [case for case in args.only if case not in (*CASES, "heads")]:
        parser.error(f"no case is called {unknown[0]}; there are: {', '.join(CASES)}, heads")
    if not LOAD.exists():
        skip_benchmark(f"no program at {LOAD}: build it (scripts/cargo build --release -p longhaul-relay --example relay_load)")
    run_in_namespaces()
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    results = Results(args, [program for _, program in PEERS.values()], descriptors=DESCRIPTORS)
    results.available({name: program for name, (_, program) in PEERS.items()})
    for case in args.only:
        with results.catch_errors(case):
            if case == "heads":
                for row in heads.rows(args.longhaul, connections=200 if args.quick else 2000):
                    results.add({"case": case, **row})
            else:
                with testbed():
                    run(results, args, case)
    return results.finish(lines(results.rows))


if __name__ == "__main__":
    sys.exit(main())
