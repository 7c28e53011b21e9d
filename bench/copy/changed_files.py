#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bytes that longhaul copy and rsync send for a file that the target has in another version.

    bench/copy/changed_files.py [--longhaul PATH] [--megabytes 200] [--work DIR]

Both copy a file of random bytes, change it in the same way, and copy it again, over the loopback interface of a namespace, where
no other program sends. A stand-in for ssh runs the other end directly; rsync is a daemon, so that both send over TCP. The figures
are the bytes that the interface sent in both directions, headers included. They do not depend on the machine's speed.

Needs root. Without rsync, only longhaul is measured.
"""
import argparse, json, os, pathlib, shutil, subprocess, sys, tempfile, time

CONFIG = "port = 8730\nuse chroot = no\n[to]\npath = {path}\nread only = no\nuid = root\ngid = root\n"


def loopback_bytes():
    shown = subprocess.run(["ip", "-s", "-j", "link", "show", "lo"], check=True, capture_output=True).stdout
    return json.loads(shown)[0]["stats64"]["tx"]["bytes"]


def sent_by(command):
    before = loopback_bytes()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return loopback_bytes() - before


def rewrite(path, change):
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content))


def set_byte(content):
    content[len(content) // 2] ^= 1
    return content


CHANGES = {
    "touched": lambda content: content,
    "1 MiB appended": lambda content: content + os.urandom(1 << 20),
    "one byte changed": set_byte,
    "one byte inserted at the start": lambda content: b"x" + content,
}


def commands(work, longhaul):
    ssh = work / "ssh"
    ssh.write_text('#!/bin/sh\nshift 2\nSSH_CONNECTION="127.0.0.1 1 127.0.0.1 2" exec "$@"\n')
    ssh.chmod(0o755)
    copy = [longhaul, "copy", "--quiet", "--ssh", ssh, "--remote-program", longhaul, f"{work}/from/", f"far:{work}/longhaul"]
    yield "longhaul", copy
    if shutil.which("rsync"):
        (work / "rsyncd.conf").write_text(CONFIG.format(path=work / "rsync"))
        yield "rsync", ["rsync", "--archive", f"{work}/from/", "rsync://127.0.0.1:8730/to/"]


def measure(work, args):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name in ("from", "longhaul", "rsync"):
        (work / name).mkdir()
    tools = dict(commands(work, args.longhaul))
    daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={work}/rsyncd.conf"]) if "rsync" in tools else None
    file = work / "from/file"
    file.write_bytes(os.urandom(args.megabytes << 20))
    try:
        time.sleep(1)
        print("bytes sent:", ", ".join(tools))
        for change, function in {"new": lambda content: content, **CHANGES}.items():
            # rsync compares whole seconds.
            time.sleep(1.1)
            rewrite(file, function)
            sent = [sent_by(command) for command in tools.values()]
            for tool in tools:
                subprocess.run(["cmp", file, work / tool / "file"], check=True)
            print(f"{change}: {', '.join(f'{count:,}' for count in sent)}", flush=True)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--longhaul", default=root / "target/release/longhaul", type=pathlib.Path, metavar="PATH")
    parser.add_argument("--megabytes", default=200, type=int, help="size of the file, MiB (200)")
    parser.add_argument("--work", default="/var/tmp", help="directory on the disk to copy from and to (/var/tmp)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "--inside"])
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-", dir=args.work) as work:
        measure(pathlib.Path(work), args)


main()
