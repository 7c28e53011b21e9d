#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""longhaul relay that intercepts beside PEPsal, a split-TCP proxy that is transparent to both ends: in one run, alternating.

    bench/interception/pepsal.py [--pepsal PATH] [--longhaul PATH] [--rounds 5] [--only bulk1,bulk8,long,near,many,fidelity]

Client, router and server are network namespaces; the router forwards (`direct`), or diverts all connections to one proxy.
PEPsal spoofs the client's address and port, so `keep-source` is what compares with it. `bulk1` and `bulk8` are flows over
plain veth. The client sends over a long line that loses packets (`long`), and over one that loses none behind a short one that
does (`near`); `many` are short connections from one address. `fidelity` is one round of fidelity.py. All three hosts have cubic, the
ends Linux's own socket buffers, the router those of PEPsal's example, whoever runs there. Needs root and iperf3.
"""
import contextlib, os, pathlib, resource, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import fidelity, run
from fidelity import CLIENT, SERVER
from namespaces import Program, ProgramError, add_veth, hosts, iperf3, netns_exec, run_command, run_in_namespaces
from results import ROOT, Results, argument_parser, comma_separated, group_by, median_range, parse_args, table

THEIRS = "pepsal"
LONGHAUL = ["--transparent", "127.0.0.1:3129", "--intercept", "10.9.2.0/24",
            "--transparent", "[::1]:3129", "--intercept", "[fd00:9:2::/64]"]
WAYS = {"direct": None, THEIRS: None, "intercepted": [], "keep-source": ["--keep-source"], "verified": ["--verify-connect"],
        "both": ["--keep-source", "--verify-connect"]}
# What --verify-connect changes is over before bulk data flow.
BULK_WAYS = list(WAYS)[:4]
# As pepsal-iptables does for two interfaces: TPROXY finds the sockets of open connections itself.
DIVERT = """table ip pepsal { chain divert { type filter hook prerouting priority mangle
iifname { near0, far0 } meta l4proto tcp tproxy to :5000 meta mark set 1 accept
}
}
"""
CUBIC = ["congctl", "cubic"]
ENDS = ["net.ipv4.tcp_rmem=4096 131072 6291456", "net.ipv4.tcp_wmem=4096 16384 4194304"]
ROUTER = ["net.ipv4.tcp_rmem=8192 2100000 8400000", "net.ipv4.tcp_wmem=8192 2100000 8400000", "net.ipv4.ip_forward=1",
          "net.ipv6.conf.all.forwarding=1"]
LINES = {"long": (None, ["--delay", "50ms", "--rate", "200mbit", "--loss", "0.01%"]),
         "near": (["--delay", "5ms", "--rate", "200mbit", "--loss", "0.1%"], ["--delay", "50ms", "--rate", "200mbit"])}
PROCESSES = 2


@contextlib.contextmanager
def line(args, device, left, right, flags):
    """A pair of veth, or an emulated line if there are flags."""
    if not flags:
        add_veth(left, right, device)
        yield
        return
    ends = [f"{host}:{device}:{address}" for host, address in (left, right)]
    words = ["--name", device, "--left", ends[0], "--right", ends[1], "--seed", args.seed, *flags]
    with Program(None, args.longhaul, "link", *words, ready=r"\bready$"):
        yield


@contextlib.contextmanager
def testbed(args, way, near=None, far=None):
    with contextlib.ExitStack() as stack:
        stack.enter_context(hosts("client", "router", "server"))
        stack.enter_context(line(args, "near0", ("client", f"{CLIENT}/24"), ("router", "10.9.1.2/24"), near))
        stack.enter_context(line(args, "far0", ("router", "10.9.2.2/24"), ("server", f"{SERVER}/24"), far))
        for host, device, net in (("client", "near0", "10.9.1."), ("server", "far0", "10.9.2.")):
            for at, last in ((host, 1), ("router", 2)):
                run_command("ip", "-n", at, "route", "change", f"{net}0/24", "dev", device, "src", f"{net}{last}", *CUBIC)
            run_command("ip", "-n", host, "route", "add", "default", "via", f"{net}2", *CUBIC)
            run_command(*netns_exec(host, "sysctl", "-qw", *ENDS))
        run_command(*netns_exec("router", "sysctl", "-qw", *ROUTER))
        rules("server", fidelity.RULES)
        if way == THEIRS:
            rules("router", DIVERT)
            run_command("ip", "-n", "router", "rule", "add", "fwmark", 1, "lookup", 100)
            run_command("ip", "-n", "router", "route", "add", "local", "default", "dev", "lo", "table", 100)
        yield


def add_ipv6():
    for host, device, net in (("client", "near0", "fd00:9:1::"), ("server", "far0", "fd00:9:2::")):
        for at, last in ((host, 1), ("router", 2)):
            run_command("ip", "-n", at, "address", "add", f"{net}{last}/64", "dev", device, "nodad")
        run_command("ip", "-n", host, "route", "add", "default", "via", f"{net}2")


def rules(host, text):
    subprocess.run(netns_exec(host, "nft", "-f", "-"), input=text, text=True, check=True)


@contextlib.contextmanager
def proxy(args, way):
    """What stands between client and server, running within the block; None if the router forwards."""
    if way == "direct":
        yield None
        return
    theirs = ([args.pepsal, "-c", "4096"], 5000)
    command, ready = theirs if way == THEIRS else ([args.longhaul, "relay", *LONGHAUL, *WAYS[way]], "listening transparent")
    with Program("router", *command, ready=ready) as program:
        time.sleep(0.3)
        yield program


def must_live(program):
    if program and program.wait(0):
        raise ProgramError(f"it ended with {program.exit_code}: {program.log()[-400:]}")


def cpu_seconds(program):
    """Of all its threads."""
    fields = pathlib.Path(f"/proc/{program.pid}/stat").read_text().rsplit(") ", 1)[1].split() if program else [0] * 13
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def machine_seconds():
    """Of all that runs here."""
    fields = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    return sum(fields[:3] + fields[5:7]) / os.sysconf("SC_CLK_TCK")


def bulk(flows):
    def measure(args, program):
        own, all_ = cpu_seconds(program), machine_seconds()
        got = iperf3("client", "-c", SERVER, "-t", args.seconds, "-P", flows, timeout=args.seconds + 40)["sum_received"]
        gigabytes = got["bytes"] / 1e9
        costs = {"cpu_s_gb": (cpu_seconds(program) - own) / gigabytes} if program else {}
        return {"mbit_s": got["bits_per_second"] / 1e6, "machine_s_gb": (machine_seconds() - all_) / gigabytes, **costs}
    return measure


def short(count, seconds):
    """So many connections one by one, or as many as there are in that time: ports kept, changed, failed."""
    end, outcomes = time.monotonic() + seconds, []
    while len(outcomes) < count and time.monotonic() < end:
        outcomes.append(run.connect())
    print(outcomes.count(True), outcomes.count(False), outcomes.count(None))


def many(args, program):
    began, own = time.monotonic(), cpu_seconds(program)
    words = [sys.executable, __file__, "short", args.connections // PROCESSES, args.limit]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Program("client", *words)) for _ in range(PROCESSES)]
        kept, moved, failed = (sum(column) for column in zip(*(map(int, client.output(args.limit + 20).split()) for client in clients)))
    done = kept + moved
    costs = {"cpu_ms": (cpu_seconds(program) - own) * 1e3 / max(done, 1)} if program else {}
    return {"per_s": done / (time.monotonic() - began), "kept": 100 * kept / max(done, 1), "failed": failed, **costs}


CASES = {"bulk1": bulk(1), "bulk8": bulk(8), "long": bulk(1), "near": bulk(1), "many": many}


def measure(args, way, case):
    with testbed(args, way, *LINES.get(case, ())), contextlib.ExitStack() as stack:
        if case == "many":
            servers = [run.here("server", "serve", ready="ready") for _ in range(PROCESSES)]
        else:
            servers = [Program("server", "iperf3", "-s", ready=5201)]
        for server in servers:
            stack.enter_context(server)
        program = stack.enter_context(proxy(args, way))
        measured = CASES[case](args, program)
        must_live(program)
        # An emulated line takes more of the machine than what is measured.
        return {key: value for key, value in measured.items() if case not in LINES or key != "machine_s_gb"}


def probe(args, way, which):
    """What the client sees, with a server and a proxy that nothing was tried on before."""
    server = Program("server", sys.executable, fidelity.__file__, "serve", ready="ready")
    with server, proxy(args, way) as program:
        saw = run_command(*netns_exec("client", sys.executable, fidelity.__file__, "probe", which)).strip()
        return saw + "; the proxy ended" * bool(program and program.wait(0))


def probe_all(args, results, ways):
    for way in ways:
        with results.catch_errors(f"fidelity, {way}", peer=way == THEIRS), testbed(args, way):
            add_ipv6()
            for which in fidelity.PROBES:
                results.add({"case": "fidelity", "way": way, "probe": which, "saw": probe(args, way, which)})


def measured_table(rows):
    figures = {"mbit_s": ("Mbit/s", ".0f"), "cpu_s_gb": ("CPU s/GB", ".2f"), "machine_s_gb": ("of the machine", ".2f"),
               "per_s": ("connections a second", ".0f"), "cpu_ms": ("CPU ms each", ".3f"), "kept": ("ports kept, %", ".0f"),
               "failed": ("failed", ".0f")}
    lines = ([f"{case}, {way}", *(median_range(own, key, form) for key, (_, form) in figures.items())]
             for (case, way), own in group_by([row for row in rows if row["case"] in CASES], "case", "way"))
    return table(["case", *(head for head, _ in figures.values())], lines)


def fidelity_table(rows, ways):
    saw = {(row["probe"], row["way"]): row["saw"] for row in rows if row["case"] == "fidelity"}
    probes = dict.fromkeys(probe for probe, _ in saw)
    return table(["fidelity", *ways], ([probe, *(saw.get((probe, way), "–") for way in ways)] for probe in probes))


def arguments():
    parser = argument_parser(__doc__)
    parser.prog = "bench/interception/pepsal.py"
    parser.add_argument("--pepsal", default=os.environ.get("PEPSAL", THEIRS), metavar="PATH", help="its program (PEPSAL, or pepsal)")
    parser.add_argument("--only", type=comma_separated, default=[*CASES, "fidelity"], metavar="CASE,...")
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="of bulk data (10)")
    parser.add_argument("--connections", type=int, default=20000, metavar="N", help="short ones of one measurement (20000)")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="seconds that these may take (20)")
    parser.set_defaults(out=ROOT / "out/bench/interception-pepsal")
    args = parse_args(parser, required=["nft", "iperf3"], seconds=2, connections=2000, limit=5)
    if unknown := [case for case in args.only if case not in (*CASES, "fidelity")]:
        parser.error(f"no case is called {unknown[0]}; there are: {', '.join(CASES)}, fidelity")
    return args


def main():
    args = arguments()
    run_in_namespaces()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = Results(args)
    results.available({THEIRS: args.pepsal})
    ways = [way for way in WAYS if way not in results.skipped]
    for turn in range(args.rounds):
        # The same packets are lost for everybody.
        args.seed = turn + 1
        for case in (case for case in CASES if case in args.only):
            for way in [way for way in ways if case == "many" or way in BULK_WAYS][:: -1 if turn % 2 else 1]:
                with results.catch_errors(f"{case}, {way}", peer=way == THEIRS):
                    results.add({"case": case, "way": way, "round": turn, **measure(args, way, case)})
    if "fidelity" in args.only:
        probe_all(args, results, ways)
    return results.finish([*measured_table(results.rows), "", *fidelity_table(results.rows, ways)])


if __name__ == "__main__":
    sys.exit(short(int(sys.argv[2]), float(sys.argv[3])) if sys.argv[1:2] == ["short"] else main())
