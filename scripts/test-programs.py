#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""test-programs.py LIST: runs the test programs in LIST, the output of `cargo test --no-run --message-format=json`.

Two programs run at a time, because the last tests of one program leave a core idle. The output of each is printed as a whole. A
program that measures real traffic, or fills the kernel's memory for TCP, runs alone. Exits with 101, as cargo does, if a
test fails.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONCURRENT_PROGRAMS = 2
EXCLUSIVE = {"lab_scenarios", "relay_shares"}


def read_list(list_file):
    """Returns the test programs, and the path of the binary that they run."""
    messages = [json.loads(line) for line in Path(list_file).read_text().splitlines()]
    executables = [message for message in messages if message["reason"] == "compiler-artifact" and message["executable"]]
    programs = [message for message in executables if message["profile"]["test"]]
    binary = next(message["executable"] for message in executables
                  if message["target"]["name"] == "longhaul" and not message["profile"]["test"])
    return programs, binary


def environment(package, binary, concurrency):
    """The environment of a test program: cargo's, the binary to run, and the number of concurrent tests.

    Most tests wait, so two for each core keep the cores busy."""
    threads = 2 * os.cpu_count() // concurrency
    return {"RUST_TEST_THREADS": str(threads), "LONGHAUL": binary, **os.environ, "CARGO_MANIFEST_DIR": str(package)}


def run(program, binary, concurrency=1):
    """Runs a program in the directory of its package, as one of `concurrency` programs. Returns whether it passed."""
    package = Path(program["manifest_path"]).parent
    target, executable = program["target"], program["executable"]
    source = Path(target["src_path"]).relative_to(package)
    process = subprocess.run([executable], cwd=package, env=environment(package, binary, concurrency), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    path = os.path.relpath(executable)
    output = f"     Running {source} ({path})\n".encode() + process.stdout
    if process.returncode not in (0, 101):
        output += f"\n{path} ended with {process.returncode}\n".encode()
    sys.stdout.buffer.write(output + b"\n")
    sys.stdout.buffer.flush()
    return process.returncode == 0


def main(list_file):
    programs, binary = read_list(list_file)
    exclusive = [program for program in programs if program["target"]["name"] in EXCLUSIVE]
    concurrent = [program for program in programs if program not in exclusive]
    results = [run(program, binary) for program in exclusive]
    with ThreadPoolExecutor(CONCURRENT_PROGRAMS) as pool:
        results += pool.map(lambda program: run(program, binary, CONCURRENT_PROGRAMS), concurrent)
    failed = [program for program, passed in zip(exclusive + concurrent, results) if not passed]
    for program in failed:
        package = Path(program["manifest_path"]).parent.name
        print(f"error: a test of {package}, {program['target']['name']}, failed")
    return 101 if failed else 0


sys.exit(main(sys.argv[1]))
