#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the results of scripts/kernels, one file for each kernel, as a table of features and kernels. Below the table are the
reasons of failures, and where `longhaul doctor` had predicted something else."""
import pathlib
import sys


def read(path):
    """Returns the kernel's release, and for each feature the verdict and the reason of a failure."""
    lines = [line.split("|", 2) for line in path.read_text(errors="replace").splitlines() if line.count("|") >= 2]
    features = {name: (verdict, reason.strip()) for name, verdict, reason in lines if name not in ("kernel", "end")}
    release = next((verdict for name, verdict, _ in lines if name == "kernel"), path.name)
    return release, features


# Names of rows in doctor's output, where they differ. Doctor has one finding for each missing setting of `run`.
DOCTOR_NAMES = {
    "cc watch, --count-acks": "cc watch",
    "run --inter-packet-gap, --gso off": "run --inter-packet-gap",
    "run --cc lh_htcp": "cc load htcp",
    "run --cc lh_bic --param": "cc load bic",
    "run, other settings": "run",
    "relay --transparent --keep-source": "relay --transparent",
}
DOCTOR = "doctor: "
SETTINGS_WITH_ROWS = ("run --inter-packet-gap", "run --ack-ratio", "run --ack-rate")


def doctor_verdict(found, feature):
    """Doctor's verdict on a row: yes, no, or empty."""
    name = DOCTOR_NAMES.get(feature, feature)
    verdicts = [found.get(DOCTOR + name, ("", ""))[0]]
    if feature == "run, other settings":
        settings = [key.removeprefix(DOCTOR) for key in found if key.startswith(DOCTOR + "run --")]
        verdicts += ["no" for name in settings if name not in SETTINGS_WITH_ROWS]
    return "no" if "no" in verdicts else verdicts[0]


def disagreements(kernels, features):
    """Yields a line for each feature that doctor predicted wrongly."""
    for feature in features:
        for release, found in kernels.items():
            result, doctor = found.get(feature, ("", ""))[0], doctor_verdict(found, feature)
            if result and doctor and result != doctor:
                yield f"- {release}, `{feature}`: {result}, doctor predicted {doctor}"


def print_doctor(kernels, features):
    kernels_with_doctor = {release: found for release, found in kernels.items() if any(name.startswith(DOCTOR) for name in found)}
    if not kernels_with_doctor:
        return
    differing = list(disagreements(kernels_with_doctor, features))
    print("\n`longhaul doctor` predicted the same, except:" if differing else "\n`longhaul doctor` predicted the same.")
    print("\n".join(differing), end="\n" if differing else "")
    for release, found in kernels_with_doctor.items():
        lacking = [name.removeprefix(DOCTOR) for name in found if name.startswith(DOCTOR) and found[name][0] == "no"]
        print(f"- {release} lacks, by doctor: {', '.join(lacking) or 'nothing'}")


def row(cells):
    return "| " + " | ".join(cells) + " |"


def main():
    directory = pathlib.Path(sys.argv[1])
    names = [pathlib.Path(name).name.removesuffix(".deb") for name in sys.argv[2:]]
    tested = [name for name in names if (directory / name).exists() and (directory / name).stat().st_size]
    if not tested:
        sys.exit(3)
    kernels = dict(read(directory / name) for name in tested)
    all_names = dict.fromkeys(name for found in kernels.values() for name in found)
    features = [name for name in all_names if not name.startswith(DOCTOR)]
    print(row(["", *kernels]))
    print(row(["---"] * (len(kernels) + 1)))
    reasons = []
    for feature in features:
        cells = []
        for release, found in kernels.items():
            verdict, reason = found.get(feature, ("not tested", ""))
            if reason:
                reasons.append(f"- {release}, `{feature}`: {reason}")
            cells.append(verdict)
        print(row([f"`{feature}`", *cells]))
    print("\n".join(["", *reasons]) if reasons else "", end="\n" if reasons else "")
    print_doctor(kernels, features)
    missing = [name for name in names if name not in tested]
    if missing:
        print(f"\nNot tested: {', '.join(missing)}.")


main()
