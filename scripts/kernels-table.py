#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints what guests of scripts/kernels said, a file a kernel, as a table: features in rows, kernels in columns, and below
why something did not work."""
import pathlib
import sys


def read(path):
    """The kernel's release, and for each feature whether it works and why not."""
    lines = [line.split("|", 2) for line in path.read_text(errors="replace").splitlines() if line.count("|") >= 2]
    features = {name: (verdict, why.strip()) for name, verdict, why in lines if name not in ("kernel", "end")}
    release = next((verdict for name, verdict, _ in lines if name == "kernel"), path.name)
    return release, features


def row(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    folder = pathlib.Path(sys.argv[1])
    names = [pathlib.Path(name).name.removesuffix(".deb") for name in sys.argv[2:]]
    tried = [name for name in names if (folder / name).exists() and (folder / name).stat().st_size]
    if not tried:
        sys.exit(3)
    kernels = dict(read(folder / name) for name in tried)
    features = list(dict.fromkeys(name for found in kernels.values() for name in found))
    print(row(["", *kernels]))
    print(row(["---"] * (len(kernels) + 1)))
    reasons = []
    for feature in features:
        cells = []
        for release, found in kernels.items():
            verdict, why = found.get(feature, ("not tried", ""))
            if why:
                reasons.append(f"- {release}, `{feature}`: {why}")
            cells.append(verdict)
        print(row([f"`{feature}`", *cells]))
    print("\n".join(["", *reasons]) if reasons else "", end="\n" if reasons else "")
    missing = [name for name in names if name not in tried]
    if missing:
        print(f"\nNot tried: {', '.join(missing)}.")


main()
