# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two hosts with a long path between them: namespaces, `longhaul link`, and the servers that tools speak to."""
import dataclasses, json, os, pathlib, platform, shutil, subprocess, time

from groups import Group

SOURCE, TARGET = "source", "target"
ADDRESS = {SOURCE: "10.77.0.1", TARGET: "10.77.0.2"}
NETWORK = "10.77.0.0/30"
HTTP_PORT, GRIDFTP_PORT = 8080, 2811
RATE_BPS = 1_000_000_000
# Of an IP packet of 1500 bytes, what TCP with timestamps carries.
PAYLOAD = 1448 / 1500

BUFFERS = ("tcp_rmem", "tcp_wmem")


def machine_buffer(name):
    """What new namespaces begin with."""
    return pathlib.Path(f"/proc/sys/net/ipv4/{name}").read_text()


@dataclasses.dataclass(frozen=True)
class Path:
    """rtt_ms; loss as a ratio, in both directions; buffers `default` (the machine's) or `tuned` (2 BDP, never less), or
    `bursts`: as tuned, and TCP sends 16 segments at a time at least, however slow its stream (tcp_min_tso_segs)."""
    rtt_ms: int
    loss: float
    buffers: str

    def sysctls(self):
        bursts = ["net.ipv4.tcp_min_tso_segs=16"] if self.buffers == "bursts" else []
        return ["net.ipv4.tcp_no_metrics_save=1", *bursts, *(f"net.ipv4.{name}={self.buffer(name)}" for name in BUFFERS)]

    def buffer(self, name):
        least, usual, most = machine_buffer(name).split()
        bdp_bytes = RATE_BPS * self.rtt_ms // 8000
        return f"{least} {usual} {max(int(most), 2 * bdp_bytes) if self.buffers != 'default' else most}"


def cover_machine(directory):
    """In this mount namespace: names of namespaces for ourselves, and names of hosts, which GridFTP and bbcp look up."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    hosts = directory / "hosts"
    names = {"localhost": "127.0.0.1", platform.node(): "127.0.0.1"} | ADDRESS
    hosts.write_text("".join(f"{address} {host}\n" for host, address in names.items()))
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)


class Here:
    """One host and no path: this machine."""

    def __init__(self, options, directory, root, cgroup):
        self.options, self.directory, self.root = options, directory, root
        self.groups = {SOURCE: Group(cgroup / SOURCE)}

    def __enter__(self):
        return self

    def within(self, _, command):
        return list(map(str, command))

    def environment(self, host):
        """Nobody's settings but ours, and nothing written into somebody's home."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory), "LANG": "C.UTF-8", "GLOBUS_HOSTNAME": ADDRESS[host]}

    def __exit__(self, *_):
        for group in self.groups.values():
            group.remove()


class Testbed(Here):
    """Up within the block. `directory` is for what servers need; `root` is what they give and take."""

    def __init__(self, path, options, directory, root, cgroup):
        super().__init__(options, directory, root, cgroup)
        self.groups[TARGET] = Group(cgroup / TARGET)
        self.path, self.servers, self.link = path, [], None

    def __enter__(self):
        try:
            for host in (SOURCE, TARGET):
                subprocess.run(["ip", "netns", "add", host], check=True)
                subprocess.run(["ip", "-n", host, "link", "set", "lo", "up"], check=True)
                subprocess.run(self.within(host, ["sysctl", "-qw", *self.path.sysctls()]), check=True)
            self.start_link()
            self.choose_control()
            self.start_sshd()
            self.start_nginx()
            self.start_gridftp()
        except BaseException:
            self.__exit__()
            raise
        for group in self.groups.values():
            group.keep()
        return self

    def within(self, host, command):
        return ["ip", "netns", "exec", host, *map(str, command)]

    def start_link(self):
        self.link = subprocess.Popen(
            [self.options.link, "link", "--name", self.root.parent.name, "--rate", f"{RATE_BPS // 10**6}mbit",
             "--delay", f"{self.path.rtt_ms / 2:g}ms", "--loss", f"{self.path.loss * 100:.4f}%",
             "--left", f"{SOURCE}:wan0:{ADDRESS[SOURCE]}/30", "--right", f"{TARGET}:wan0:{ADDRESS[TARGET]}/30",
             "--counters", self.directory / "link.jsonl", *["--realtime"] * self.options.realtime],
            stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.link.stderr:
            said.append(line)
            if line.strip().endswith("ready"):
                return
        raise RuntimeError(f"longhaul link did not start: {''.join(said)}")

    def choose_control(self):
        """Of the route, since a namespace may not make any control its default that the machine reserves to root."""
        for host in (SOURCE, TARGET):
            subprocess.run(["ip", "-n", host, "route", "replace", NETWORK, "dev", "wan0", "proto", "kernel", "scope", "link",
                            "src", ADDRESS[host], "congctl", "cubic"], check=True)

    def serve(self, host, name, command, port):
        """Starts a server and waits until it listens."""
        log = open(self.directory / f"{name}.log", "wb")
        process = subprocess.Popen(self.within(host, command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   preexec_fn=self.groups[host].join, env=self.environment(host))
        self.servers.append(process)
        for _ in range(200):
            listening = subprocess.run(self.within(host, ["ss", "-Hltn", f"sport = :{port}"]), capture_output=True, text=True)
            if listening.stdout.strip():
                return process
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{name} did not start: {(self.directory / f'{name}.log').read_text()[-400:]}")

    def start_sshd(self):
        d = self.directory
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("host_key", "user_key"):
            if not (d / key).exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / key], check=True)
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
        self.sshd = self.serve(TARGET, "sshd", [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", d / "sshd_config"], 22)

    def start_nginx(self):
        if not shutil.which("nginx"):
            return
        d = self.directory
        temporary = "".join(f"{kind}_temp_path {d}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (d / "nginx.conf").write_text(
            f"daemon off; user root; pid {d}/nginx.pid; worker_processes 2; error_log stderr;\nevents {{ worker_connections 1024; }}\n"
            f"http {{ {temporary} access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;\n"
            f"server {{ listen {ADDRESS[SOURCE]}:{HTTP_PORT}; root {self.root}; autoindex on; }} }}\n")
        self.serve(SOURCE, "nginx", ["nginx", "-c", d / "nginx.conf", "-e", "stderr"], HTTP_PORT)

    def start_gridftp(self):
        server = shutil.which("globus-gridftp-server")
        if not server:
            return
        (self.directory / "gridftp.conf").write_text("")
        self.serve(TARGET, "gridftp",
                   [server, "-c", self.directory / "gridftp.conf", "-p", GRIDFTP_PORT, "-control-interface", ADDRESS[TARGET],
                    "-data-interface", ADDRESS[TARGET], "-aa", "-anonymous-user", "root", "-auth-level", "0"], GRIDFTP_PORT)

    def received(self):
        """Bytes that came to the target's end of the link, a header for each super-packet included."""
        for line in open(f"/proc/{self.sshd.pid}/net/dev"):
            name, _, fields = line.partition(":")
            if name.strip() == "wan0":
                return int(fields.split()[0])
        raise RuntimeError("the link's interface is gone")

    def sent_by_connection(self):
        """Bytes that were acknowledged on each of the source's connections so far."""
        listed = subprocess.run(self.within(SOURCE, ["ss", "-HtinO", "state", "established"]), capture_output=True, text=True).stdout
        words = (word for line in listed.splitlines() for word in line.split())
        return [int(word.partition(":")[2]) for word in words if word.startswith("bytes_acked:")]

    def lateness(self):
        """What the link says of itself at its end, a direction each."""
        lines = (json.loads(line) for line in (self.directory / "link.jsonl").read_text().splitlines())
        return [line for line in lines if line.get("record") == "selfcheck"]

    def __exit__(self, *_):
        super().__exit__()
        for process in self.servers:
            process.wait()
        if self.link:
            self.link.terminate()
            self.link.communicate()
        for host in (SOURCE, TARGET):
            subprocess.run(["ip", "netns", "del", host], check=False, stderr=subprocess.DEVNULL)
