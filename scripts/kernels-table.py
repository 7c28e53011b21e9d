#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints what guests of scripts/kernels said, a file a kernel, as a table: features in rows, kernels in columns. Below is why
something did not work, and what `longhaul doctor` had said of it beforehand where that is something else."""
import pathlib
import sys


def read(path):
    """The kernel's release, and for each feature whether it works and why not."""
    lines = [line.split("|", 2) for line in path.read_text(errors="replace").splitlines() if line.count("|") >= 2]
    features = {name: (verdict, why.strip()) for name, verdict, why in lines if name not in ("kernel", "end")}
    release = next((verdict for name, verdict, _ in lines if name == "kernel"), path.name)
    return release, features


# Rows that doctor has other words for. The settings of `run` are a finding each where they lack.
DOCTORS = {
    "cc watch, --count-acks": "cc watch",
    "run --inter-packet-gap, --gso off": "run --inter-packet-gap",
    "run --cc lh_htcp": "cc load htcp",
    "run --cc lh_bic --param": "cc load bic",
    "run, other settings": "run",
    "relay --transparent --keep-source": "relay --transparent",
}
DOCTOR = "doctor: "
OWN_ROW = ("run --inter-packet-gap", "run --ack-ratio", "run --ack-rate")


def said(found, feature):
    """What doctor said of a row: yes, no or nothing."""
    name = DOCTORS.get(feature, feature)
    verdicts = [found.get(DOCTOR + name, ("", ""))[0]]
    if feature == "run, other settings":
        settings = [key.removeprefix(DOCTOR) for key in found if key.startswith(DOCTOR + "run --")]
        verdicts += ["no" for name in settings if name not in OWN_ROW]
    return "no" if "no" in verdicts else verdicts[0]


def disagreements(kernels, features):
    for feature in features:
        for release, found in kernels.items():
            tried, doctor = found.get(feature, ("", ""))[0], said(found, feature)
            if tried and doctor and tried != doctor:
                yield f"- {release}, `{feature}`: {tried}, doctor said {doctor}"


def tell_of_doctor(kernels, features):
    asked = {release: found for release, found in kernels.items() if any(name.startswith(DOCTOR) for name in found)}
    if not asked:
        return
    other = list(disagreements(asked, features))
    print("\n`longhaul doctor` says the same but for:" if other else "\n`longhaul doctor` says the same.")
    print("\n".join(other), end="\n" if other else "")
    for release, found in asked.items():
        lacking = [name.removeprefix(DOCTOR) for name in found if name.startswith(DOCTOR) and found[name][0] == "no"]
        print(f"- {release} lacks, as doctor says: {', '.join(lacking) or 'nothing'}")


def row(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    folder = pathlib.Path(sys.argv[1])
    names = [pathlib.Path(name).name.removesuffix(".deb") for name in sys.argv[2:]]
    tried = [name for name in names if (folder / name).exists() and (folder / name).stat().st_size]
    if not tried:
        sys.exit(3)
    kernels = dict(read(folder / name) for name in tried)
    names_of_all = dict.fromkeys(name for found in kernels.values() for name in found)
    features = [name for name in names_of_all if not name.startswith(DOCTOR)]
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
    tell_of_doctor(kernels, features)
    missing = [name for name in names if name not in tried]
    if missing:
        print(f"\nNot tried: {', '.join(missing)}.")


main()
