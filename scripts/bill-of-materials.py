#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Completes a bill of materials of cargo-cyclonedx, from standard input to standard output.

It adds the C libraries that the program contains, with the versions of this machine's packages, and removes paths of the
checkout.
"""
import json
import re
import subprocess
import sys
from urllib.parse import quote

# Debian packages of the static libraries: name and licence of each library.
LINKED = {
    "libelf-dev": ("elfutils", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    "zlib1g-dev": ("zlib", "Zlib"),
}


def distribution():
    with open("/etc/os-release") as file:
        return next(line.strip().split("=")[1].strip('"') for line in file if line.startswith("ID="))


def package_version(package):
    return subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", package], check=True, capture_output=True, text=True
    ).stdout


def component(name, version, purl, licence):
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": [{"expression": licence}],
        "purl": purl,
    }


def linked_libraries():
    for package, (name, licence) in LINKED.items():
        version = package_version(package)
        yield component(name, version, f"pkg:deb/{distribution()}/{package}@{quote(version)}", licence)


def bpf_library(crates):
    """Returns libbpf, whose source is in a crate: its version is the part of the crate's version after the plus sign."""
    crate = next(crate for crate in crates if crate["name"] == "libbpf-sys")
    version = crate["version"].split("+v")[1]
    return component("libbpf", version, f"pkg:github/libbpf/libbpf@v{version}", "LGPL-2.1-only OR BSD-2-Clause")


def without_paths(text):
    text = re.sub(r"\?download_url=file://[^\"#]*", "", text)
    return re.sub(r"path\+file:///[^\"]*/crates/", "path+file:///longhaul/crates/", text)


bill = json.loads(without_paths(sys.stdin.read()))
libraries = [*linked_libraries(), bpf_library(bill["components"])]
bill["components"] += libraries
bill["dependencies"] += [{"ref": entry["bom-ref"], "dependsOn": []} for entry in libraries]
program = next(entry for entry in bill["dependencies"] if entry["ref"] == bill["metadata"]["component"]["bom-ref"])
program["dependsOn"] += [entry["bom-ref"] for entry in libraries]
json.dump(bill, sys.stdout, indent=2)
