#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul relay compared with other relays, which alternate in one run.

    bench/relay/run.py [--only bulk1,bulk8,connects,echo,idle,heads] [--rounds 5] [--before PATH [--no-peers]]

Three network namespaces, client - relay - server, are joined by veth. Each relay that is on this machine runs in
its best documented configuration. `direct` has no relay. The tables have medians, and ratios to the best other
relay. `idle` and `heads` take one round. `heads` is longhaul's memory for slow request heads. `--before` adds an older
longhaul, and the ratio to it.

Needs root, and the example relay_load in the release build. Debian: apt-get install libnginx-mod-stream haproxy
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
CLIENT_SIDE, SERVER_SIDE, ORIGIN = "10.77.1.2", "10.77.2.1", "10.77.2.2:7001"
PORT = 7000
# A relay has two descriptors for each connection, and gives a client three quarters of them: the hard limit may be too low
# for 10,000.
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
IDLE = min(10_000, (DESCRIPTORS - 800) // 2 * 3 // 4)
SYSCTLS = ["net.ipv4.ip_local_port_range=1024 65535", "net.ipv4.tcp_tw_reuse=1", "net.core.somaxconn=8192"]


@contextlib.contextmanager
def testbed():
    """Creates the hosts, and runs the origin on the server, for the block."""
    with hosts(CLIENT, RELAY, SERVER, sysctls=SYSCTLS):
        add_veth((CLIENT, "10.77.1.1/30"), (RELAY, f"{CLIENT_SIDE}/30"), device="near")
        add_veth((RELAY, f"{SERVER_SIDE}/30"), (SERVER, "10.77.2.2/30"), device="far")
        run_command("ip", "-n", CLIENT, "route", "add", "default", "via", CLIENT_SIDE)
        run_command("ip", "-n", SERVER, "route", "add", "default", "via", SERVER_SIDE)
        run_command(*netns_exec(RELAY, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        with Program(SERVER, LOAD, "serve", ORIGIN, ready=7001):
            yield


def write(directory, name, text):
    path = directory / name
    path.write_text(text)
    return path


# Each relay has a function that returns the protocol of its clients and its command. `directory` is for its files.

def longhaul(program, _):
    return "plain", [program, "relay", "--forward", f"{CLIENT_SIDE}:{PORT}={ORIGIN}",
                     "--allow-from", "10.77.1.0/30"]


def longhaul_socks5(program, _):
    return "socks5", [program, "relay", "--socks5", f"{CLIENT_SIDE}:{PORT}", "--allow-from", "10.77.1.0/30"]


def longhaul_http(program, _):
    return "connect", [program, "relay", "--http", f"{CLIENT_SIDE}:{PORT}", "--allow-from", "10.77.1.0/30"]


def nginx(program, directory):
    modules = "/usr/lib/nginx/modules/ngx_stream_module.so"
    load = f"load_module {modules};" if os.path.exists(modules) else ""
    config = write(directory, "nginx.conf", f"""{load}
daemon off; pid {directory}/pid; worker_processes 2; worker_rlimit_nofile {DESCRIPTORS}; error_log stderr;
events {{ worker_connections 32768; }}
stream {{ server {{ listen {CLIENT_SIDE}:{PORT} reuseport backlog=4096; proxy_pass {ORIGIN};
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
    bind {CLIENT_SIDE}:{PORT} backlog 4096
    server origin {ORIGIN}
""")
    return "plain", [program, "-db", "-f", config]


def dante(program, directory):
    config = write(directory, "danted.conf", f"""
logoutput: {directory}/log
internal: {CLIENT_SIDE} port = {PORT}
external: {SERVER_SIDE}
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
http_port {CLIENT_SIDE}:{PORT}
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
    return "plain", [program, "-l", f"{CLIENT_SIDE}:{PORT}", "-r", ORIGIN]


def gost(program, _):
    return "plain", [program, "-L", f"tcp://{CLIENT_SIDE}:{PORT}/{ORIGIN}"]


PEERS = {"nginx": (nginx, "nginx"), "haproxy": (haproxy, "haproxy"), "dante": (dante, "danted"), "squid": (squid, "squid"),
         "realm": (realm, os.environ.get("REALM", "realm")), "gost": (gost, os.environ.get("GOST", "gost"))}


def process_tree(root):
    """Returns the PIDs of a process and of all its descendants."""
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
    """User and system time of processes, ended children included."""
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            total += sum(map(int, fields[11:15]))
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids):
    """Proportional set size of processes."""
    total = 0
    for pid in pids:
        try:
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def used_memory():
    """Memory in use on this machine, in bytes."""
    fields = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    kib = lambda key: int(fields[key].split()[0])
    return 1024 * (kib("MemTotal") - kib("MemAvailable"))


class RunningRelay:
    """A relay that runs for the block; none for `direct`."""

    def __init__(self, relay, program):
        self.relay, self.program, self.process = relay, program, None
        self.protocol, self.address = "plain", ORIGIN

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        if self.relay:
            with self.stack:
                directory = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
                directory.chmod(0o777)
                self.protocol, command = self.relay(self.program, directory)
                self.process = self.stack.enter_context(Program(RELAY, *command, ready=PORT))
                self.address = f"{CLIENT_SIDE}:{PORT}"
                self.stack = self.stack.pop_all()
        return self

    def pids(self):
        return process_tree(self.process.pid) if self.process else []

    def load_command(self, job, **flags):
        arguments = [argument for key, value in flags.items() for argument in (f"--{key}", value)]
        return netns_exec(CLIENT, LOAD, job, "--protocol", self.protocol, "--relay", self.address, "--origin", ORIGIN, *arguments)

    def run_load(self, job, **flags):
        return json.loads(run_command(*self.load_command(job, **flags), timeout=120))

    def __exit__(self, *_):
        self.stack.close()


def bulk(flows):
    def measure(relay, quick):
        before = cpu_seconds(relay.pids())
        result = relay.run_load("bulk", flows=flows, seconds=1 if quick else 3)
        cpu = cpu_seconds(relay.pids()) - before
        metrics = {"Gbit/s": result["bytes"] * 8e-9 / result["seconds"]}
        return metrics | ({"CPU s/GB": cpu / (result["bytes"] * 1e-9)} if relay.process else {})
    return measure


def connects(relay, quick):
    result = relay.run_load("connects", flows=16, seconds=1 if quick else 3)
    return {"connects/s": result["connections"] / result["seconds"]}


def echo(relay, quick):
    result = relay.run_load("echo", count=2000 if quick else 20000)
    return {"p50 us": result["p50_ns"] / 1000, "p99 us": result["p99_ns"] / 1000}


def idle(relay, quick):
    count = 1000 if quick else IDLE
    relay_before, machine_before = resident_bytes(relay.pids()), used_memory()
    client = subprocess.Popen(relay.load_command("idle", count=count), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = client.stdout.readline()
    connections = json.loads(line)["open"] if line else 0
    time.sleep(1)
    metrics = {"open": connections}
    if connections:
        metrics |= {"relay B/conn": (resident_bytes(relay.pids()) - relay_before) / connections,
                    "machine B/conn": (used_memory() - machine_before) / connections}
    client.stdin.close()
    client.wait(timeout=60)
    return metrics


CASES = {"bulk1": (bulk(1), 5), "bulk8": (bulk(8), 5), "connects": (connects, 5), "echo": (echo, 5), "idle": (idle, 1)}
BEFORE = ", before"
# Metrics where more is better. For the others less is better.
HIGHER_IS_BETTER = {"Gbit/s", "connects/s", "open"}


def run(results, args, case):
    measure, max_rounds = CASES[case]
    first = {"direct": (None, None), "longhaul": (longhaul, args.longhaul)}
    ways = {"longhaul": longhaul, "longhaul socks5": longhaul_socks5, "longhaul connect": longhaul_http}
    peers = {} if args.no_peers else PEERS
    relays = first | peers | {name: (way, args.longhaul) for name, way in ways.items()}
    if args.before:
        relays |= {name + BEFORE: (way, args.before) for name, way in ways.items()}
    for round_ in range(min(args.rounds, max_rounds)):
        for name in (name for name in relays if name not in results.skipped):
            peer = name in PEERS
            with results.catch_errors(name, peer), RunningRelay(*relays[name]) as relay, results.catch_errors(f"{case}, {name}", peer):
                results.add({"case": case, "relay": name, "round": round_, **measure(relay, args.quick)})


def table_lines(rows):
    for (case,), own_rows in group_by(rows, "case"):
        if case == "heads":
            yield from heads.table(own_rows)
            continue
        keys = [key for key in dict.fromkeys(key for row in own_rows for key in row) if key not in ("case", "relay", "round", "load")]
        medians = {name: {key: statistics.median(row[key] for row in own if key in row) for key in keys if any(key in row for row in own)}
                   for (name,), own in group_by(own_rows, "relay")}
        lines = [(name, *(f"{values[key]:.4g}" if key in values else "" for key in keys)) for name, values in medians.items()]
        others = [values for name, values in medians.items() if name in PEERS]
        if others and "longhaul" in medians:
            best = {key: (max if key in HIGHER_IS_BETTER else min)((values[key] for values in others if key in values), default=0) for key in keys}
            lines.append(("longhaul / best", *(f"{medians['longhaul'].get(key, 0) / best[key]:.3f}" if best[key] else "" for key in keys)))
        for name in (name for name in medians if name + BEFORE in medians):
            before = medians[name + BEFORE]
            ratios = {key: value / before[key] for key, value in medians[name].items() if before.get(key)}
            lines.append((f"{name} / before", *(f"{ratios[key]:.3f}" if key in ratios else "" for key in keys)))
        yield ""
        yield from table([case, *keys], lines)


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--only", type=comma_separated, default=[*CASES, "heads"], metavar="CASE,...", help=f"({','.join(CASES)},heads)")
    parser.add_argument("--before", type=pathlib.Path, metavar="PATH", help="an older longhaul to compare with")
    parser.add_argument("--no-peers", action="store_true", help="leave the other relays out")
    args = parse_args(parser)
    if unknown := [case for case in args.only if case not in (*CASES, "heads")]:
        parser.error(f"no case is called {unknown[0]}; the cases are: {', '.join(CASES)}, heads")
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
    return results.finish(table_lines(results.rows))


if __name__ == "__main__":
    sys.exit(main())
