#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""test-programs.py LIST: runs the test programs that `cargo test --no-run --message-format=json` told in LIST.

Two run at a time, since a program's last tests leave a core without work; what each prints comes as a whole. A program
that measures real traffic, or fills the kernel's memory for TCP, has the machine to itself. Ends with 101, as cargo
does, where one fails.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

AT_A_TIME = 2
ALONE = {"lab_scenarios", "relay_shares"}


def built(list_file):
    """The test programs, and the path of the binary that they run."""
    messages = [json.loads(line) for line in Path(list_file).read_text().splitlines()]
    executables = [message for message in messages if message["reason"] == "compiler-artifact" and message["executable"]]
    programs = [message for message in executables if message["profile"]["test"]]
    binary = next(message["executable"] for message in executables
                  if message["target"]["name"] == "longhaul" and not message["profile"]["test"])
    return programs, binary


def environment(package, binary, beside):
    """The environment of a test program: as cargo gives it, the binary that it is to run, and how many tests run at a time.

    Most tests wait for what must not happen: two for each core keep the cores busy."""
    threads = 2 * os.cpu_count() // beside
    return {"RUST_TEST_THREADS": str(threads), "LONGHAUL": binary, **os.environ, "CARGO_MANIFEST_DIR": str(package)}


def run(program, binary, beside=1):
    """Runs it in its package's folder as one of `beside` programs, and whether it passed."""
    package = Path(program["manifest_path"]).parent
    target, executable = program["target"], program["executable"]
    source = Path(target["src_path"]).relative_to(package)
    ran = subprocess.run([executable], cwd=package, env=environment(package, binary, beside), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    shown = os.path.relpath(executable)
    said = f"     Running {source} ({shown})\n".encode() + ran.stdout
    if ran.returncode not in (0, 101):
        said += f"\n{shown} ended with {ran.returncode}\n".encode()
    sys.stdout.buffer.write(said + b"\n")
    sys.stdout.buffer.flush()
    return ran.returncode == 0


def main(list_file):
    every, binary = built(list_file)
    alone = [program for program in every if program["target"]["name"] in ALONE]
    beside = [program for program in every if program not in alone]
    passed = [run(program, binary) for program in alone]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        passed += pool.map(lambda program: run(program, binary, AT_A_TIME), beside)
    failed = [program for program, good in zip(alone + beside, passed) if not good]
    for program in failed:
        package = Path(program["manifest_path"]).parent.name
        print(f"error: a test of {package}, {program['target']['name']}, failed")
    return 101 if failed else 0


sys.exit(main(sys.argv[1]))
