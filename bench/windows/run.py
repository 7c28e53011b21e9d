#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What longhaul's commands carry by default over long paths, on hosts with the kernel's default settings.

    bench/windows/run.py [--rtts 20,100,240] [--rates 100mbit,1gbit] [--ways direct,recipe,...] [--rounds 5]

Two network namespaces are joined by `longhaul link` with a queue of one bandwidth-delay product and without loss. The ways
alternate in each round. The rate is payload by time, from the start of the client to its last byte:

direct       curl from nginx
tuned        the same, with buffers of 256 MiB on both hosts
recipe       curl through two relays by README's first recipe, as root
user         the same, with relays of an ordinary user without rights
unit         the same, with the rights of the shipped unit: no capability, none to gain (NoNewPrivileges)
tuned recipe the recipe on hosts with buffers of 256 MiB
one relay    curl through one relay beside the server, as root (SOCKS5)
one relay url  curl of the http:// URL through that relay (HTTP proxy)
url          curl of the http:// URL through the two relays, as root (HTTP proxy)
tls          the recipe with TLS between the relays, as root
udt          longhaul udt
copy         longhaul copy over ssh, from the server
run bbr      curl from nginx under `longhaul run --cc bbr`

`--before PATH` adds the ways that have relays with an older binary, as `recipe, before`. Needs root, curl, nginx and sshd.
"""
import contextlib, pathlib, shutil, statistics, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from namespaces import Program, emulated_link, hosts, netns_exec, run_command, run_in_namespaces
from results import Results, argument_parser, comma_separated, parse_args, table

CLIENT, SERVER = ("client", "10.0.0.1"), ("server", "10.0.0.2")
LARGE = ["net.ipv4.tcp_rmem=4096 131072 268435456", "net.ipv4.tcp_wmem=4096 16384 268435456"]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]
UNIT = [*NOBODY, "--bounding-set", "-all", "--no-new-privs"]
RECIPE = {"recipe": [], "user": NOBODY, "unit": UNIT, "tuned recipe": []}
WITH_RELAYS = [*RECIPE, "url", "tls", "one relay", "one relay url"]
WAYS = ["direct", "tuned", *WITH_RELAYS, "udt", "copy", "run bbr"]
BEFORE = ", before"
# Bytes of a transfer, by rate: some ten seconds of the line.
SIZES = {"100mbit": 100_000_000, "1gbit": 1_000_000_000}


def nginx(directory):
    """Returns the arguments of an nginx that serves the directory."""
    text = (f"daemon off; pid {directory}/pid; error_log {directory}/errors; worker_processes 1; user root;\n"
            f"events {{}}\nhttp {{ access_log off; sendfile on; server {{ listen {SERVER[1]}:80; root {directory}; }} }}\n")
    (directory / "nginx.conf").write_text(text)
    return ["nginx", "-c", directory / "nginx.conf", "-p", directory]


@contextlib.contextmanager
def relays(binary, prefix, listener="socks5"):
    """Runs README's first recipe for the block."""
    far = [*prefix, binary, "relay", "--convert", f"{SERVER[1]}:5124", "--allow-from", f"{CLIENT[1]}/32"]
    near = [*prefix, binary, "relay", f"--{listener}", "127.0.0.1:1080", "--peer", f"{SERVER[1]}:5124"]
    with Program(SERVER[0], *far, ready="listening convert "), Program(CLIENT[0], *near, ready=f"listening {listener} "):
        yield "127.0.0.1:1080"


@contextlib.contextmanager
def relays_with_tls(binary, directory):
    """Runs two relays with TLS between them for the block."""
    if not (directory / "certs").exists():
        run_command(binary, "relay", "--make-certificates", directory / "certs", "near", "far")
    tls = {name: f'tls = {{ ca = "certs/ca.pem", certificate = "certs/{name}.pem", key = "certs/{name}-key.pem" }}\n' for name in ("near", "far")}
    (directory / "far.toml").write_text(
        f'allow_from = ["{CLIENT[1]}"]\n[[listener]]\nkind = "convert"\naddress = "{SERVER[1]}:5124"\n{tls["far"]}')
    (directory / "near.toml").write_text(
        '[[listener]]\nkind = "socks5"\naddress = "127.0.0.1:1080"\n[[route]]\nvia = ["far"]\n'
        f'[peer.far]\naddress = "{SERVER[1]}:5124"\n{tls["near"]}')
    far, near = ([binary, "relay", "--config", directory / f"{name}.toml"] for name in ("far", "near"))
    with Program(SERVER[0], *far, ready="listening convert "), Program(CLIENT[0], *near, ready="listening socks5 "):
        yield "127.0.0.1:1080"


@contextlib.contextmanager
def one_relay(binary, listener):
    """Runs one relay beside the server for the block."""
    command = [binary, "relay", f"--{listener}", f"{SERVER[1]}:1080", "--allow-from", f"{CLIENT[1]}/32", "--allow-local"]
    with Program(SERVER[0], *command, ready=f"listening {listener} "):
        yield f"{SERVER[1]}:1080"


def curl(size, proxy=None, scheme="socks5h"):
    """Downloads the file and returns the rate in bit/s."""
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download} %{time_total}", *(["-x", f"{scheme}://{proxy}"] if proxy else []),
               f"http://{SERVER[1]}/file"]
    got, seconds = run_command(*netns_exec(CLIENT[0], *command), timeout=300).split()
    assert int(got) == size, f"{got} of {size} bytes"
    return 8 * size / float(seconds)


def udt(binary, directory, size):
    receive = [binary, "udt", "receive", directory / "received", "--listen", f"{CLIENT[1]}:9102"]
    (directory / "received").unlink(missing_ok=True)
    with Program(CLIENT[0], *receive) as receiver:
        time.sleep(0.5)
        began = time.monotonic()
        run_command(*netns_exec(SERVER[0], binary, "udt", "send", directory / "file", f"{CLIENT[1]}:9102"), timeout=300)
        receiver.wait(60)
        return 8 * size / (time.monotonic() - began)


def sshd(directory):
    """Returns the arguments of an sshd on the server, and writes a configuration for its client."""
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "user_key"):
        if not (directory / key).exists():
            run_command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key)
    (directory / "sshd_config").write_text(
        f"ListenAddress {SERVER[1]}\nHostKey {directory}/host_key\nAuthorizedKeysFile {directory}/user_key.pub\nPidFile none\n"
        "PermitRootLogin yes\nStrictModes no\nUsePAM no\nUseDNS no\nMaxStartups 100\n")
    (directory / "ssh_config").write_text(
        f"Host *\n  User root\n  IdentityFile {directory}/user_key\n  IdentitiesOnly yes\n  UserKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking no\n  BatchMode yes\n  LogLevel ERROR\n")
    return [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", directory / "sshd_config"]


def copy(binary, directory, size):
    with Program(SERVER[0], *sshd(directory), ready=22):
        shutil.rmtree(directory / "copied", ignore_errors=True)
        (directory / "copied").mkdir()
        ssh = f"ssh -F {directory}/ssh_config"
        command = [binary, "copy", "--ssh", ssh, "--remote-program", binary, f"{SERVER[1]}:{directory}/random", f"{directory}/copied/"]
        began = time.monotonic()
        run_command(*netns_exec(CLIENT[0], *command), timeout=300)
        seconds = time.monotonic() - began
        assert (directory / "copied/random").stat().st_size == size
        return 8 * size / seconds


def measure(way, binary, directory, size):
    """Returns the rate of one transfer in bit/s."""
    tuned = ["-qw", *LARGE] if way.startswith("tuned") else []
    for host in (CLIENT[0], SERVER[0]) if tuned else ():
        run_command(*netns_exec(host, "sysctl", *tuned))
    if way == "udt":
        return udt(binary, directory, size)
    if way == "copy":
        return copy(binary, directory, size)
    prefix = [binary, "run", "--cc", "bbr", "--"] if way == "run bbr" else []
    with Program(SERVER[0], *prefix, *nginx(directory), ready=80):
        if way == "url":
            with relays(binary, [], "http") as proxy:
                return curl(size, proxy, "http")
        if way == "tls":
            with relays_with_tls(binary, directory) as proxy:
                return curl(size, proxy)
        if way in RECIPE:
            with relays(binary, RECIPE[way]) as proxy:
                return curl(size, proxy)
        if way.startswith("one relay"):
            listener, scheme = ("http", "http") if way.endswith("url") else ("socks5", "socks5h")
            with one_relay(binary, listener) as proxy:
                return curl(size, proxy, scheme)
        return curl(size)


def measure_path(args, results, rtt_ms, rate, directory):
    size = SIZES[rate] // (5 if args.quick else 1)
    with open(directory / "file", "wb") as file:
        file.truncate(size)
    # A copy would skip the zeros.
    run_command("openssl", "rand", "-out", directory / "random", str(size))
    shape = ["--rate", rate, "--delay", f"{rtt_ms / 2:g}ms", "--queue", "1bdp"]
    for round_number in range(args.rounds):
        for way in args.ways:
            # New hosts each time: the kernel remembers what it measured to a destination.
            with hosts(CLIENT[0], SERVER[0]), emulated_link(args.link or args.longhaul, *[(h, f"{a}/24") for h, a in (CLIENT, SERVER)], *shape):
                binary = args.before if way.endswith(BEFORE) else args.longhaul
                rate_bps = measure(way.removesuffix(BEFORE), binary, directory, size)
            results.add({"rtt_ms": rtt_ms, "rate": rate, "way": way, "round": round_number, "bits_per_s": rate_bps})
            print(f"{rtt_ms} ms, {rate}, {way}: {rate_bps / 1e6:.1f} Mbit/s", flush=True)


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--rtts", type=comma_separated, default=["20", "100", "240"], metavar="MS,...")
    parser.add_argument("--rates", type=comma_separated, default=list(SIZES), metavar="RATE,...")
    parser.add_argument("--ways", type=comma_separated, default=WAYS, metavar="WAY,...")
    parser.add_argument("--link", type=pathlib.Path, metavar="PATH", help="another binary for the emulated link")
    parser.add_argument("--before", type=pathlib.Path, metavar="PATH", help="an older binary to compare with")
    args = parse_args(parser, required=("curl", "nginx", "openssl", "ssh-keygen"))
    if args.before:
        args.before = args.before.resolve()
        args.ways += [way + BEFORE for way in args.ways if way in WITH_RELAYS]
    run_in_namespaces()
    results = Results(args, programs=("curl", "nginx"))
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        for rtt in args.rtts:
            for rate in args.rates:
                measure_path(args, results, int(rtt), rate, directory)
    rows = []
    for rtt in args.rtts:
        for rate in args.rates:
            for way in args.ways:
                rates = [row["bits_per_s"] / 1e6 for row in results.rows if (row["rtt_ms"], row["rate"], row["way"]) == (int(rtt), rate, way)]
                rows.append([rtt, rate, way, f"{statistics.median(rates):.0f}", f"{min(rates):.0f}–{max(rates):.0f}"])
    print(*table(["RTT, ms", "line", "way", "Mbit/s", "spread"], rows), sep="\n")


if __name__ == "__main__":
    main()
