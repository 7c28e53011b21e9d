#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""test-programs.py [--peers] LIST: runs the test programs in LIST, the output of `cargo test --no-run --message-format=json`.

Three programs run at a time: many tests wait, and the last tests of one program leave a core idle. The output of each is printed
as a whole. A program that fills the kernel's memory for TCP runs alone. Exits with 101, as cargo does, if a
test fails. `--peers` runs the ignored tests, which need programs of others.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONCURRENT_PROGRAMS = 3
EXCLUSIVE = {"relay_shares"}
# Their tests mostly wait.
WAITING = ("relay", "site")
# Ignored tests that take a quarter of an hour or more, or only print.
LONG = ("hours::", "bbr_flows_share_a_path_with_most_seeds", "speed::measures_a_hundred_thousand_tasks")
# They start first, so that none of them runs alone at the end. The tests of udt compute while the others wait.
SLOWEST = ("relay", "site", "udt", "copy", "tuning", "lab_scenarios")
# The slowest program takes 5 minutes on two idle cores.
SECONDS_MAX = 1500

PEERS = "--peers" in sys.argv
IGNORED = ["--ignored", *(word for name in LONG for word in ("--skip", name))]

write_lock = threading.Lock()
running = {}


def write(output):
    with write_lock:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


def print_unfinished(signum, _frame):
    """Prints what the running programs have printed so far."""
    for name, log in list(running.items()):
        sys.stdout.buffer.write(f"     Stopped {name}\n".encode() + Path(log).read_bytes() + b"\n")
    sys.stdout.buffer.flush()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def read_list(list_file):
    """Returns the test programs, and the path of the binary that they run."""
    messages = [json.loads(line) for line in Path(list_file).read_text().splitlines()]
    executables = [message for message in messages if message["reason"] == "compiler-artifact" and message["executable"]]
    programs = [message for message in executables if message["profile"]["test"]]
    binary = next(message["executable"] for message in executables
                  if message["target"]["name"] == "longhaul" and not message["profile"]["test"])
    return programs, binary


def environment(package, binary, name, concurrency):
    """The environment of a test program: cargo's, the binary to run, and the number of concurrent tests.

    Most tests wait, so two to four for each core keep the cores busy."""
    threads = os.cpu_count() * (3 if name in WAITING else 2 if concurrency == 1 else 1)
    return {"RUST_TEST_THREADS": str(threads), "LONGHAUL": binary, **os.environ, "CARGO_MANIFEST_DIR": str(package)}


def execute(executable, package, variables, output):
    """Returns how the program ended, or None if it did not end in time."""
    with subprocess.Popen([executable, *(IGNORED if PEERS else [])], cwd=package, env=variables, stdin=subprocess.DEVNULL, stdout=output,
                          stderr=subprocess.STDOUT) as process:
        try:
            return process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return None


def run(program, binary, concurrency=1):
    """Runs a program in the directory of its package, as one of `concurrency` programs. Returns whether it passed."""
    package = Path(program["manifest_path"]).parent
    target, executable = program["target"], program["executable"]
    source = Path(target["src_path"]).relative_to(package)
    path = os.path.relpath(executable)
    start = time.monotonic()
    with tempfile.NamedTemporaryFile() as log:
        running[path] = log.name
        status = execute(executable, package, environment(package, binary, target["name"], concurrency), log)
        del running[path]
        output = Path(log.name).read_bytes()
    seconds = time.monotonic() - start
    end = f"     Ended {package.name} {source} after {seconds:.0f} s\n"
    if status is None:
        end = f"\n{path} did not end within {SECONDS_MAX} s\n"
    elif status not in (0, 101):
        end = f"\n{path} ended with {status}\n"
    write(f"     Running {source} ({path})\n".encode() + output + end.encode() + b"\n")
    return status == 0


def rank(program):
    name = program["target"]["name"]
    return SLOWEST.index(name) if name in SLOWEST else len(SLOWEST)


def main(list_file):
    signal.signal(signal.SIGTERM, print_unfinished)
    programs, binary = read_list(list_file)
    exclusive = [program for program in programs if program["target"]["name"] in EXCLUSIVE]
    concurrent = [program for program in programs if program not in exclusive]
    concurrent.sort(key=rank)
    results = [run(program, binary) for program in exclusive]
    with ThreadPoolExecutor(CONCURRENT_PROGRAMS) as pool:
        results += pool.map(lambda program: run(program, binary, CONCURRENT_PROGRAMS), concurrent)
    failed = [program for program, passed in zip(exclusive + concurrent, results) if not passed]
    for program in failed:
        package = Path(program["manifest_path"]).parent.name
        print(f"error: a test of {package}, {program['target']['name']}, failed")
    return 101 if failed else 0


sys.exit(main(sys.argv[-1]))
