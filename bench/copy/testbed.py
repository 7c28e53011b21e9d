# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two hosts with a long path between them: namespaces, `longhaul link`, and the servers that the tools need."""
import contextlib, dataclasses, json, os, pathlib, platform, shutil

from groups import Group
from namespaces import Program, emulated_link, hosts, netns_exec, run_command
from results import PAYLOAD

SOURCE, TARGET = "source", "target"
ADDRESS = {SOURCE: "10.77.0.1", TARGET: "10.77.0.2"}
NETWORK = "10.77.0.0/30"
HTTP_PORT, GRIDFTP_PORT = 8080, 2811
RATE_BPS = 1_000_000_000
BUFFERS = ("tcp_rmem", "tcp_wmem")


def default_buffer(name):
    """This machine's setting, which new namespaces inherit."""
    return pathlib.Path(f"/proc/sys/net/ipv4/{name}").read_text()


@dataclasses.dataclass(frozen=True)
class Path:
    """A path: RTT, loss ratio in both directions, and buffers. `default` buffers are the machine's, `tuned` ones at least
    2 BDP. `bursts` is `tuned`, and TCP sends at least 16 segments at once, even on a slow stream (tcp_min_tso_segs)."""
    rtt_ms: int
    loss: float
    buffers: str

    def sysctls(self):
        bursts = ["net.ipv4.tcp_min_tso_segs=16"] if self.buffers == "bursts" else []
        return ["net.ipv4.tcp_no_metrics_save=1", *bursts, *(f"net.ipv4.{name}={self.buffer(name)}" for name in BUFFERS)]

    def buffer(self, name):
        low, default, high = default_buffer(name).split()
        bdp_bytes = RATE_BPS * self.rtt_ms // 8000
        return f"{low} {default} {max(int(high), 2 * bdp_bytes) if self.buffers != 'default' else high}"


def write_hosts_file(directory):
    """Mounts an /etc/hosts with the names of the hosts, which GridFTP and bbcp look up."""
    names = {"localhost": "127.0.0.1", platform.node(): "127.0.0.1"} | ADDRESS
    (directory / "hosts").write_text("".join(f"{address} {host}\n" for host, address in names.items()))
    run_command("mount", "--bind", directory / "hosts", "/etc/hosts")


class LocalTestbed:
    """This machine as the only host, without a path. Runs for the block."""
    names = (SOURCE,)

    def __init__(self, results, options, directory, root, cgroup):
        self.results, self.options, self.directory, self.root, self.cgroup = results, options, directory, root, cgroup

    def host(self, _):
        """The namespace of a host; None is this machine."""
        return None

    def __enter__(self):
        with contextlib.ExitStack() as self.stack:
            self.groups = {name: Group(self.cgroup / name) for name in self.names}
            for group in self.groups.values():
                self.stack.callback(group.remove)
            self.start()
            self.stack = self.stack.pop_all()
        return self

    def start(self):
        pass

    def environment(self, host):
        """Environment of a program: no settings of the user, and a home directory of its own."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory), "LANG": "C.UTF-8", "GLOBUS_HOSTNAME": ADDRESS[host]}

    def program(self, host, *command, **options):
        """Returns a Program in the control group of its host."""
        return Program(self.host(host), *command, env=self.environment(host), preexec_fn=self.groups[host].join, **options)

    def __exit__(self, *_):
        self.stack.close()


class Testbed(LocalTestbed):
    """Two hosts and their servers. `directory` has the servers' files, `root` the files to copy."""
    names = (SOURCE, TARGET)

    def __init__(self, path, *rest):
        super().__init__(*rest)
        self.path, self.counters = path, self.directory / "link.jsonl"

    def host(self, name):
        return name

    def start(self):
        enter, options = self.stack.enter_context, self.options
        ends = [(host, f"{ADDRESS[host]}/30") for host in self.names]
        enter(hosts(*self.names, sysctls=self.path.sysctls()))
        enter(emulated_link(options.link, *ends, "--rate", f"{RATE_BPS // 10**6}mbit", "--delay", f"{self.path.rtt_ms / 2:g}ms",
                "--loss", f"{self.path.loss * 100:.4f}%", "--counters", self.counters, *["--realtime"] * options.realtime))
        self.set_congestion_control()
        self.sshd = enter(self.sshd_program())
        for program, server in (("nginx", self.nginx), ("globus-gridftp-server", self.gridftp)):
            if shutil.which(program) and program not in self.results.skipped:
                with self.results.catch_errors(program, peer=True):
                    enter(server())
        for group in self.groups.values():
            group.mark_servers()

    def set_congestion_control(self):
        """Sets CUBIC on the route. The default of a namespace may not be a control that the machine reserves to root."""
        for host in self.names:
            run_command("ip", "-n", host, "route", "replace", NETWORK, "dev", "wan0", "proto", "kernel", "scope", "link",
                 "src", ADDRESS[host], "congctl", "cubic")

    def sshd_program(self):
        d = self.directory
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("host_key", "user_key"):
            if not (d / key).exists():
                run_command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / key)
        (d / "authorized_keys").write_text((d / "user_key.pub").read_text())
        (d / "known_hosts").write_text("".join(f"{name} {(d / 'host_key.pub').read_text()}" for name in (TARGET, ADDRESS[TARGET])))
        (d / "sshd_config").write_text(
            f"ListenAddress {ADDRESS[TARGET]}\nHostKey {d}/host_key\nAuthorizedKeysFile {d}/authorized_keys\n"
            "PidFile none\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nUseDNS no\nMaxStartups 500\n"
            f"MaxSessions 100\nSubsystem sftp internal-sftp\nSetEnv HOME={d}\n")
        (d / "ssh_config").write_text(
            f"Host {TARGET} {ADDRESS[TARGET]}\n  HostName {ADDRESS[TARGET]}\n  User root\n  IdentityFile {d}/user_key\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {d}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  BatchMode yes\n")
        (d / "rclone.conf").write_text(
            f"[{TARGET}]\ntype = sftp\nhost = {ADDRESS[TARGET]}\nuser = root\nkey_file = {d}/user_key\n"
            f"known_hosts_file = {d}/known_hosts\nshell_type = unix\n")
        return self.program(TARGET, shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", d / "sshd_config", ready=22)

    def nginx(self):
        d = self.directory
        temporary = "".join(f"{kind}_temp_path {d}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (d / "nginx.conf").write_text(
            f"daemon off; user root; pid {d}/nginx.pid; worker_processes 2; error_log stderr;\nevents {{ worker_connections 1024; }}\n"
            f"http {{ {temporary} access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;\n"
            f"server {{ listen {ADDRESS[SOURCE]}:{HTTP_PORT}; root {self.root}; autoindex on; }} }}\n")
        return self.program(SOURCE, "nginx", "-c", d / "nginx.conf", "-e", "stderr", ready=HTTP_PORT)

    def gridftp(self):
        (self.directory / "gridftp.conf").write_text("")
        return self.program(TARGET, "globus-gridftp-server", "-c", self.directory / "gridftp.conf", "-p", GRIDFTP_PORT,
                            "-control-interface", ADDRESS[TARGET], "-data-interface", ADDRESS[TARGET], "-aa", "-anonymous-user", "root",
                            "-auth-level", "0", ready=GRIDFTP_PORT)

    def received(self):
        """Bytes that the target's interface has received, with one header for each super-packet."""
        for line in open(f"/proc/{self.sshd.pid}/net/dev"):
            name, _, fields = line.partition(":")
            if name.strip() == "wan0":
                return int(fields.split()[0])
        raise RuntimeError("the link's interface is gone")

    def sent_by_connection(self):
        """Bytes acknowledged so far on each connection of the source."""
        output = run_command(*netns_exec(SOURCE, "ss", "-HtinO", "state", "established"))
        words = (word for line in output.splitlines() for word in line.split())
        return [int(word.partition(":")[2]) for word in words if word.startswith("bytes_acked:")]

    def lateness(self):
        """The link's report of its own lateness, one for each direction, after its end."""
        lines = (json.loads(line) for line in self.counters.read_text().splitlines())
        return [line for line in lines if line.get("record") == "timing_report"]
