#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Servers of the tools that copy: configures one of them, in DIR, and becomes it.

    servers.py sshd|nginx|gridftp --servers DIR --files DIR
"""
import argparse, os, pathlib, shutil, subprocess, sys

ADDRESS = {"source": "10.9.0.1", "target": "10.9.0.2"}
HTTP_PORT, GRIDFTP_PORT = 8080, 2811


def sshd(d, _):
    """Configures ssh, and tools that use it, for the target under its name and its address."""
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "user_key"):
        if not (d / key).exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / key], check=True)
    names, address = ("target", ADDRESS["target"]), ADDRESS["target"]
    shutil.copy(d / "user_key.pub", d / "authorized_keys")
    (d / "known_hosts").write_text("".join(f"{name} {(d / 'host_key.pub').read_text()}" for name in names))
    (d / "sshd_config").write_text(
        f"ListenAddress {address}\nHostKey {d}/host_key\nAuthorizedKeysFile {d}/authorized_keys\nPidFile none\nPermitRootLogin yes\n"
        f"StrictModes no\nUsePAM no\nUseDNS no\nMaxStartups 500\nMaxSessions 100\nSubsystem sftp internal-sftp\nSetEnv HOME={d}\n")
    (d / "ssh_config").write_text(
        f"Host {' '.join(names)}\n  HostName {address}\n  User root\n  IdentityFile {d}/user_key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {d}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n")
    (d / "rclone.conf").write_text(
        f"[target]\ntype = sftp\nhost = {address}\nuser = root\nkey_file = {d}/user_key\nknown_hosts_file = {d}/known_hosts\nshell_type = unix\n")
    return [shutil.which("sshd"), "-D", "-e", "-f", d / "sshd_config"]


def nginx(d, files):
    temporary = "".join(f"{kind}_temp_path {d}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (d / "nginx.conf").write_text(
        f"daemon off; user root; pid {d}/nginx.pid; worker_processes 2; error_log stderr;\nevents {{ worker_connections 1024; }}\n"
        f"http {{ {temporary} access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;\n"
        f"server {{ listen {ADDRESS['source']}:{HTTP_PORT}; root {files}; autoindex on; }} }}\n")
    (d / "rclone.conf").touch()
    return [shutil.which("nginx"), "-c", d / "nginx.conf", "-e", "stderr"]


def gridftp(d, _):
    (d / "gridftp.conf").touch()
    return [shutil.which("globus-gridftp-server"), "-c", d / "gridftp.conf", "-p", GRIDFTP_PORT, "-control-interface", ADDRESS["target"],
            "-data-interface", ADDRESS["target"], "-aa", "-anonymous-user", "root", "-auth-level", "0"]


def name_hosts(d):
    """Gives the hosts names, which GridFTP and bbcp look up. It lasts as long as the lab's own file system."""
    text = pathlib.Path("/etc/hosts").read_text()
    if "10.9.0.2 target" not in text:
        (d / "hosts").write_text(text + "".join(f"{address} {name}\n" for name, address in ADDRESS.items()))
        subprocess.run(["mount", "--bind", d / "hosts", "/etc/hosts"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=["sshd", "nginx", "gridftp"])
    parser.add_argument("--servers", type=pathlib.Path, required=True, help="directory for configurations and keys")
    parser.add_argument("--files", type=pathlib.Path, required=True, help="directory of the files to copy")
    args = parser.parse_args()
    args.servers.mkdir(parents=True, exist_ok=True)
    name_hosts(args.servers)
    words = {"sshd": sshd, "nginx": nginx, "gridftp": gridftp}[args.server](args.servers, args.files)
    if not words[0]:
        sys.exit(f"{args.server} is not on this machine")
    os.execve(words[0], list(map(str, words)), os.environ | {"GLOBUS_HOSTNAME": ADDRESS["target"]})


if __name__ == "__main__":
    main()
