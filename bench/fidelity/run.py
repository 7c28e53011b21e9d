#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What client and server observe of an intercepting proxy: longhaul relay and PEPsal, which is transparent to both ends.

    bench/fidelity/run.py [--pepsal PATH] [--modes direct,pepsal,intercepted,...]

Client, router and server are network namespaces. The router forwards (`direct`), or diverts all connections to one proxy.
Each probe of probes.py has a new server and a new proxy. bench/interception.toml measures rates and costs. Needs root.
"""
import contextlib, os, pathlib, resource, shutil, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
import probes
from probes import CLIENT, SERVER
from testbed import Program, Results, add_veth, argument_parser, comma_separated, hosts, netns_exec, parse_args, run_command, run_in_namespaces, table

PEPSAL = "pepsal"
LONGHAUL = ["--transparent", "127.0.0.1:3129", "--intercept", "10.9.2.0/24",
            "--transparent", "[::1]:3129", "--intercept", "[fd00:9:2::/64]"]
MODES = {"direct": None, PEPSAL: None, "intercepted": [], "keep-source": ["--keep-source"], "verified": ["--verify-connect"],
         "both": ["--keep-source", "--verify-connect"]}
# As pepsal-iptables does for two interfaces. TPROXY finds the sockets of open connections.
DIVERT = """table ip pepsal { chain divert { type filter hook prerouting priority mangle
iifname { near0, far0 } meta l4proto tcp tproxy to :5000 meta mark set 1 accept
}
}
"""


@contextlib.contextmanager
def testbed(mode):
    with hosts("client", "router", "server"):
        add_veth(("client", f"{CLIENT}/24"), ("router", "10.9.1.2/24"), "near0")
        add_veth(("router", "10.9.2.2/24"), ("server", f"{SERVER}/24"), "far0")
        for host, device, net in (("client", "near0", 1), ("server", "far0", 2)):
            run_command("ip", "-n", host, "route", "add", "default", "via", f"10.9.{net}.2")
            for at, last in ((host, 1), ("router", 2)):
                run_command("ip", "-n", at, "address", "add", f"fd00:9:{net}::{last}/64", "dev", device, "nodad")
            run_command("ip", "-n", host, "route", "add", "default", "via", f"fd00:9:{net}::2")
        run_command(*netns_exec("router", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"))
        run_command(*netns_exec("server", "nft", probes.RULES))
        if mode == PEPSAL:
            run_command(*netns_exec("router", "nft", DIVERT))
            run_command("ip", "-n", "router", "rule", "add", "fwmark", 1, "lookup", 100)
            run_command("ip", "-n", "router", "route", "add", "local", "default", "dev", "lo", "table", 100)
        yield


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


def probe(args, mode, name):
    """Returns what the client observed."""
    server = Program("server", sys.executable, probes.__file__, "serve", ready="ready")
    with server, proxy(args, mode) as program:
        observed = run_command(*netns_exec("client", sys.executable, probes.__file__, "probe", name)).strip()
        return observed + "; the proxy ended" * bool(program and program.wait(0))


def main():
    parser = argument_parser(__doc__, rounds=1)
    parser.add_argument("--pepsal", default=os.environ.get("PEPSAL", PEPSAL), metavar="PATH", help="the program of PEPsal (PEPSAL, or pepsal)")
    parser.add_argument("--modes", type=comma_separated, default=list(MODES), metavar="MODE,...", help=f"({','.join(MODES)})")
    parser.add_argument("--only", type=comma_separated, default=list(probes.PROBES), metavar="PROBE,...", help="names of probes")
    args = parse_args(parser, required=["nft"], modes=["direct", "intercepted"])
    run_in_namespaces()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    results = Results(args)
    if PEPSAL in args.modes and not shutil.which(args.pepsal):
        results.record("skipped", PEPSAL, f"{args.pepsal} is not on this machine")
    modes = [mode for mode in args.modes if mode not in results.skipped]
    for mode in modes:
        with results.catch_errors(mode, peer=mode == PEPSAL), testbed(mode):
            for name in args.only:
                results.add({"mode": mode, "probe": name, "observed": probe(args, mode, name)})
    observed = {(row["probe"], row["mode"]): row["observed"] for row in results.rows}
    return results.finish(table(["probe", *modes], ([name, *(observed.get((name, mode), "–") for mode in modes)] for name in args.only)))


if __name__ == "__main__":
    sys.exit(main())
