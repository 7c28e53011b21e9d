#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares interception by longhaul relay with PEPsal, a split-TCP proxy that is transparent to both ends.

    bench/interception/pepsal.py [--pepsal PATH] [--longhaul PATH] [--rounds 5] [--only bulk1,bulk8,long,near,many,fidelity]

Client, router and server are network namespaces. The router forwards (`direct`), or diverts all connections to one proxy. The
proxies alternate. PEPsal spoofs the client's address and port, so `keep-source` is the comparable mode. `bulk1` and `bulk8` are
flows over veth. `long` has one long path that loses packets; `near` has a short path with losses before a long one without.
`many` are short connections from one address. `fidelity` runs the probes of fidelity.py once. All three hosts have CUBIC. Client
and server have Linux's default socket buffers, the router those of PEPsal's example. Needs root and iperf3.
"""
import contextlib, os, pathlib, resource, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import fidelity, run
from fidelity import CLIENT, SERVER
from namespaces import Program, ProgramError, add_veth, hosts, iperf3, netns_exec, run_command, run_in_namespaces
from results import ROOT, Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

PEPSAL = "pepsal"
LONGHAUL = ["--transparent", "127.0.0.1:3129", "--intercept", "10.9.2.0/24",
            "--transparent", "[::1]:3129", "--intercept", "[fd00:9:2::/64]"]
MODES = {"direct": None, PEPSAL: None, "intercepted": [], "keep-source": ["--keep-source"], "verified": ["--verify-connect"],
        "both": ["--keep-source", "--verify-connect"]}
# --verify-connect only changes the handshake, so bulk transfers omit it.
BULK_MODES = list(MODES)[:4]
# As pepsal-iptables does for two interfaces. TPROXY finds the sockets of open connections.
DIVERT = """table ip pepsal { chain divert { type filter hook prerouting priority mangle
iifname { near0, far0 } meta l4proto tcp tproxy to :5000 meta mark set 1 accept
}
}
"""
CUBIC = ["congctl", "cubic"]
HOST_SYSCTLS = ["net.ipv4.tcp_rmem=4096 131072 6291456", "net.ipv4.tcp_wmem=4096 16384 4194304"]
ROUTER_SYSCTLS = ["net.ipv4.tcp_rmem=8192 2100000 8400000", "net.ipv4.tcp_wmem=8192 2100000 8400000", "net.ipv4.ip_forward=1",
                  "net.ipv6.conf.all.forwarding=1"]
PATHS = {"long": (None, ["--delay", "50ms", "--rate", "200mbit", "--loss", "0.01%"]),
         "near": (["--delay", "5ms", "--rate", "200mbit", "--loss", "0.1%"], ["--delay", "50ms", "--rate", "200mbit"])}
PROCESSES = 2


@contextlib.contextmanager
def link(args, device, left, right, flags):
    """Joins two hosts for the block: by veth, or by an emulated link if there are flags."""
    if not flags:
        add_veth(left, right, device)
        yield
        return
    ends = [f"{host}:{device}:{address}" for host, address in (left, right)]
    arguments = ["--name", device, "--left", ends[0], "--right", ends[1], "--seed", args.seed, *flags]
    with Program(None, args.longhaul, "link", *arguments, ready=r"\bready$"):
        yield


@contextlib.contextmanager
def testbed(args, mode, near=None, far=None):
    with contextlib.ExitStack() as stack:
        stack.enter_context(hosts("client", "router", "server"))
        stack.enter_context(link(args, "near0", ("client", f"{CLIENT}/24"), ("router", "10.9.1.2/24"), near))
        stack.enter_context(link(args, "far0", ("router", "10.9.2.2/24"), ("server", f"{SERVER}/24"), far))
        for host, device, net in (("client", "near0", "10.9.1."), ("server", "far0", "10.9.2.")):
            for at, last in ((host, 1), ("router", 2)):
                run_command("ip", "-n", at, "route", "change", f"{net}0/24", "dev", device, "src", f"{net}{last}", *CUBIC)
            run_command("ip", "-n", host, "route", "add", "default", "via", f"{net}2", *CUBIC)
            run_command(*netns_exec(host, "sysctl", "-qw", *HOST_SYSCTLS))
        run_command(*netns_exec("router", "sysctl", "-qw", *ROUTER_SYSCTLS))
        load_rules("server", fidelity.RULES)
        if mode == PEPSAL:
            load_rules("router", DIVERT)
            run_command("ip", "-n", "router", "rule", "add", "fwmark", 1, "lookup", 100)
            run_command("ip", "-n", "router", "route", "add", "local", "default", "dev", "lo", "table", 100)
        yield


def add_ipv6():
    for host, device, net in (("client", "near0", "fd00:9:1::"), ("server", "far0", "fd00:9:2::")):
        for at, last in ((host, 1), ("router", 2)):
            run_command("ip", "-n", at, "address", "add", f"{net}{last}/64", "dev", device, "nodad")
        run_command("ip", "-n", host, "route", "add", "default", "via", f"{net}2")


def load_rules(host, text):
    subprocess.run(netns_exec(host, "nft", "-f", "-"), input=text, text=True, check=True)


@contextlib.contextmanager
def proxy(args, mode):
    """Runs the proxy on the router for the block; yields None if the router forwards."""
    if mode == "direct":
        yield None
        return
    pepsal = ([args.pepsal, "-c", "4096"], 5000)
    command, ready = pepsal if mode == PEPSAL else ([args.longhaul, "relay", *LONGHAUL, *MODES[mode]], "listening transparent")
    with Program("router", *command, ready=ready) as program:
        time.sleep(0.3)
        yield program


def check_running(program):
    if program and program.wait(0):
        raise ProgramError(f"the proxy ended with {program.exit_code}: {program.log()[-400:]}")


def cpu_seconds(program):
    """CPU time of all threads of the proxy; 0 without one."""
    fields = pathlib.Path(f"/proc/{program.pid}/stat").read_text().rsplit(") ", 1)[1].split() if program else [0] * 13
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def machine_seconds():
    """CPU time of everything on this machine, interrupts included."""
    fields = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    return sum(fields[:3] + fields[5:7]) / os.sysconf("SC_CLK_TCK")


def bulk(flows):
    def measure(args, program):
        proxy_before, machine_before = cpu_seconds(program), machine_seconds()
        received = iperf3("client", "-c", SERVER, "-t", args.seconds, "-P", flows, timeout=args.seconds + 40)["sum_received"]
        gigabytes = received["bytes"] / 1e9
        costs = {"cpu_s_gb": (cpu_seconds(program) - proxy_before) / gigabytes} if program else {}
        return {"mbit_s": received["bits_per_second"] / 1e6, "machine_s_gb": (machine_seconds() - machine_before) / gigabytes, **costs}
    return measure


def connect_repeatedly(count, seconds):
    """Opens up to `count` connections one by one, for at most `seconds`. Prints the numbers with port kept, with port changed, and failed."""
    end, outcomes = time.monotonic() + seconds, []
    while len(outcomes) < count and time.monotonic() < end:
        outcomes.append(run.connect())
    print(outcomes.count(True), outcomes.count(False), outcomes.count(None))


def many(args, program):
    started, cpu_before = time.monotonic(), cpu_seconds(program)
    command = [sys.executable, __file__, "connect", args.connections // PROCESSES, args.limit]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Program("client", *command)) for _ in range(PROCESSES)]
        kept, changed, failed = (sum(column) for column in zip(*(map(int, client.output(args.limit + 20).split()) for client in clients)))
    completed = kept + changed
    costs = {"cpu_ms": (cpu_seconds(program) - cpu_before) * 1e3 / max(completed, 1)} if program else {}
    return {"per_s": completed / (time.monotonic() - started), "kept": 100 * kept / max(completed, 1), "failed": failed, **costs}


CASES = {"bulk1": bulk(1), "bulk8": bulk(8), "long": bulk(1), "near": bulk(1), "many": many}


def measure(args, mode, case):
    with testbed(args, mode, *PATHS.get(case, ())), contextlib.ExitStack() as stack:
        if case == "many":
            servers = [run.program("server", "serve", ready="ready") for _ in range(PROCESSES)]
        else:
            servers = [Program("server", "iperf3", "-s", ready=5201)]
        for server in servers:
            stack.enter_context(server)
        program = stack.enter_context(proxy(args, mode))
        metrics = CASES[case](args, program)
        check_running(program)
        # An emulated link uses more CPU time than the proxy, so the machine's figure is omitted.
        return {key: value for key, value in metrics.items() if case not in PATHS or key != "machine_s_gb"}


def probe(args, mode, name):
    """Runs one probe with a new server and a new proxy. Returns what the client observed."""
    server = Program("server", sys.executable, fidelity.__file__, "serve", ready="ready")
    with server, proxy(args, mode) as program:
        observed = run_command(*netns_exec("client", sys.executable, fidelity.__file__, "probe", name)).strip()
        return observed + "; the proxy ended" * bool(program and program.wait(0))


def probe_all(args, results, modes):
    for mode in modes:
        with results.catch_errors(f"fidelity, {mode}", peer=mode == PEPSAL), testbed(args, mode):
            add_ipv6()
            for name in fidelity.PROBES:
                results.add({"case": "fidelity", "mode": mode, "probe": name, "observed": probe(args, mode, name)})


def metrics_table(rows):
    metrics = {"mbit_s": ("Mbit/s", ".0f"), "cpu_s_gb": ("CPU s/GB", ".2f"), "machine_s_gb": ("machine CPU s/GB", ".2f"),
               "per_s": ("connections a second", ".0f"), "cpu_ms": ("CPU ms per connection", ".3f"), "kept": ("ports kept, %", ".0f"),
               "failed": ("failed", ".0f")}
    lines = ([f"{case}, {mode}", *(median_range(own, key, form) for key, (_, form) in metrics.items())]
             for (case, mode), own in group_by([row for row in rows if row["case"] in CASES], "case", "mode"))
    return table(["case", *(head for head, _ in metrics.values())], lines)


def fidelity_table(rows, modes):
    observed = {(row["probe"], row["mode"]): row["observed"] for row in rows if row["case"] == "fidelity"}
    probes = dict.fromkeys(probe for probe, _ in observed)
    return table(["fidelity", *modes], ([probe, *(observed.get((probe, mode), "–") for mode in modes)] for probe in probes))


def parse_arguments():
    parser = argument_parser(__doc__)
    parser.prog = "bench/interception/pepsal.py"
    parser.add_argument("--pepsal", default=os.environ.get("PEPSAL", PEPSAL), metavar="PATH", help="the program of PEPsal (PEPSAL, or pepsal)")
    parser.add_argument("--only", type=comma_separated, default=[*CASES, "fidelity"], metavar="CASE,...", help=f"({','.join(CASES)},fidelity)")
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="length of a bulk transfer (10)")
    parser.add_argument("--connections", type=int, default=20000, metavar="N", help="short connections of one measurement (20000)")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="time limit of these connections, s (20)")
    parser.set_defaults(out=ROOT / "out/bench/interception-pepsal")
    args = parse_args(parser, required=["nft", "iperf3"], seconds=2, connections=2000, limit=5)
    if unknown := [case for case in args.only if case not in (*CASES, "fidelity")]:
        parser.error(f"no case is called {unknown[0]}; the cases are: {', '.join(CASES)}, fidelity")
    return args


def main():
    args = parse_arguments()
    run_in_namespaces()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    results = Results(args)
    results.available({PEPSAL: args.pepsal})
    modes = [mode for mode in MODES if mode not in results.skipped]
    for round_ in range(args.rounds):
        # All proxies of a round have the same losses.
        args.seed = round_ + 1
        for case in (case for case in CASES if case in args.only):
            for mode in [mode for mode in modes if case == "many" or mode in BULK_MODES][:: -1 if round_ % 2 else 1]:
                with results.catch_errors(f"{case}, {mode}", peer=mode == PEPSAL):
                    results.add({"case": case, "mode": mode, "round": round_, **measure(args, mode, case)})
    if "fidelity" in args.only:
        probe_all(args, results, modes)
    return results.finish([*metrics_table(results.rows), "", *fidelity_table(results.rows, modes)])


if __name__ == "__main__":
    sys.exit(connect_repeatedly(int(sys.argv[2]), float(sys.argv[3])) if sys.argv[1:2] == ["connect"] else main())
