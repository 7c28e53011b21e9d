#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares figures that docs print, and docs/demo.svg, with the recorded results of the scenarios that they come from.

    bench/figures/run.py                   compare: takes a second, needs nothing
    bench/figures/run.py NAME …            run the scenarios again: simulated ones must have the same medians
    bench/figures/run.py --record NAME …   run them again, real traffic as root, and record the results
    bench/figures/run.py --draw            draw docs/demo.svg by the recorded result of the demo

results/NAME.json has the command, and for each cell its parameters and the medians of the metrics that documents print.
tables.toml says where they are printed. Snapshots of tests are results, too.
"""
import argparse, itertools, json, os, pathlib, re, statistics, subprocess, sys, tempfile, tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/figures/results"
LONGHAUL = os.environ.get("LONGHAUL", pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/longhaul")
NUMBER = re.compile(r"never|[+−-]?\d[\d,.]*(?:e-?\d+)?")


def load(name):
    """Returns the cells of a result. Those of a snapshot have its first two columns as parameters."""
    if not name.endswith(".snap"):
        return json.loads((RESULTS / f"{name}.json").read_text())["cells"]
    lines = (line.split() for line in (ROOT / name).read_text().split("---", 2)[2].splitlines())
    return [{"parameters": {"first": words[0], "second": words[1]}, "medians": {f"column_{n}": float(word) for n, word in enumerate(words)}}
            for words in lines if words and words[0].isdigit()]


def rows_of(table):
    """Yields the cells of each row of a document, and the parameters for which it stands."""
    lines = (ROOT / table["page"]).read_text().splitlines()
    rows = [[re.sub(r"[*`]", "", cell).strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None for line in lines]
    if "heading" not in table:
        for beginning, parameters in table["rows"].items():
            yield next((row for row in rows if row and row[0].startswith(beginning)), None), parameters
        return
    begin = next((n for n, line in enumerate(lines) if line.startswith(table["heading"])), None)
    if begin is None:
        yield None, {}
        return
    for row in itertools.takewhile(bool, rows[begin + 2:]):
        labels = [re.sub(r" \(.*| ms$", "", text) for text in row]
        if labels[0] not in table.get("measured", ()):
            yield row, dict(zip(table["rows"], labels))


def is_equal(found, wanted):
    return float(wanted) == found if isinstance(found, float) else str(found) == str(wanted)


def difference(printed, value):
    """Describes how a printed number differs from a value; None if it does not."""
    if printed == "never" or value is None:
        return None if printed == "never" and value is None else f"{printed} is printed, the result is {value}"
    text = printed.replace(",", "").replace("−", "-").rstrip(".")
    # Ties may round either way.
    half = 0.5 * 10 ** -len(text.partition(".")[2]) * (1 + 1e-6)
    return None if abs(float(text) - value) <= half else f"{printed} is printed, the result is {value:.6g}"


def compare(table):
    """Yields the place of each figure of a table, and how it differs from its result."""
    for row, parameters in rows_of(table):
        for column, number, expression, *more in table["figures"]:
            wanted = parameters | (more[0] if more else {})
            place = f"{table['page']}: {table['result']}, {wanted}, {expression}"
            cells = [cell for cell in load(table["result"])
                     if all(key in cell["parameters"] and is_equal(cell["parameters"][key], value) for key, value in wanted.items())]
            if row is None or len(cells) != 1:
                yield place, "no such row" if row is None else f"{len(cells)} cells"
                continue
            printed = NUMBER.findall(row[column])
            value = eval(expression, {}, cells[0]["medians"])
            yield place, difference(printed[number], value) if -len(printed) <= number < len(printed) else f"{row[column]!r} has no such figure"


def check():
    tables = tomllib.loads(pathlib.Path(__file__).with_name("tables.toml").read_text())["table"]
    found = [figure for table in tables for figure in compare(table)]
    wrong = [f"{place}: {problem}" for place, problem in found if problem]
    if (ROOT / "docs/demo.svg").read_text() != draw():
        wrong.append("docs/demo.svg differs from the recorded result: bench/figures/run.py --draw")
    print(*wrong, f"figures: {len(found) - len(wrong)} of {len(found)} agree with their results", sep="\n")
    return bool(wrong)


def run_again(name, record):
    """Runs the command of a result again. Compares the medians with the recorded ones, or records them."""
    file = RESULTS / f"{name}.json"
    old = json.loads(file.read_text())
    metrics = list(old["cells"][0]["medians"])
    with tempfile.TemporaryDirectory() as directory:
        command = [LONGHAUL, *old["command"].split()[1:], "--json", "--out", directory]
        # The exit code is 1 if a check does not hold, 4 if one is undecided. Both have results.
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    cells = [summarize(cell, metrics, result["resolved"]["max_retries"] > 0) for cell in result["cells"]]
    if not record:
        return f"{name}: {'the same' if cells == old['cells'] else 'differs: --record records it; change the documents, too'}"
    lines = ",\n".join("  " + json.dumps(cell) for cell in cells)
    file.write_text(f'{{"command": {json.dumps(old["command"])}, "cells": [\n{lines}\n]}}\n')
    return f"{name}: recorded"


def summarize(cell, metrics, is_repeated):
    """Returns the parameters, the medians and, of real traffic, the ranges of a cell."""
    runs = [run for run in cell["runs"] if not (is_repeated and run.get("overload"))]
    values = {metric: [run[metric] for run in runs if metric in run] for metric in metrics}
    if any("failed" in run for run in cell["runs"]) or len(runs) < min(2, len(cell["runs"])):
        sys.exit(f"{cell['parameters']}: a run failed, or the emulator was late: run it again")
    medians = {metric: float(f"{statistics.median(list_):.6g}") for metric, list_ in values.items() if list_}
    ranges = {} if cell.get("simulated") else {"ranges": {metric: [min(list_), max(list_)] for metric, list_ in values.items() if list_}}
    return {"parameters": cell["parameters"], "runs": len(runs), "medians": medians, **ranges}


def draw():
    """Draws docs/demo.svg."""
    times = {tuple(cell["parameters"][name] for name in ("loss", "client", "relays")): cell["medians"]["dvd_s"] for cell in load("demo")}
    clients = {"paper": "paper's client: 1.4 MB window", "default": "Linux before 6.18: 3 to 4 MB", "tuned": "tuned client: 16 MB and more"}
    parts, y = ['<text x="8" y="22" class="title">Time for a 4.7 GB DVD image over 26 ms and 10 Gbit/s</text>'], 36
    for loss, heading in ((0.0, "Clean cable"), (1e-05, "One packet in 100,000 lost on the cable")):
        parts.append(f'<text x="8" y="{y + 14}" class="heading">{heading}</text>')
        y += 26
        for client, label in clients.items():
            parts.append(f'<text x="8" y="{y + 20}">{label}</text>')
            for relays, name, colour in ((False, "no relays", "#8a6d3b"), (True, "two relays", "#2a6fb0")):
                time = times[loss, client, relays]
                width = max(1, 380 * time / max(times.values()))
                parts += [f'<rect x="250" y="{y}" width="{width:.1f}" height="15" fill="{colour}"/>',
                          f'<text x="{round(256 + width)}" y="{y + 12}">{time:.3g} s, {name}</text>']
                y += 17
            y += 10
    style = "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.heading{font-weight:bold}"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{y}" viewBox="0 0 760 {y}">', f"<style>{style}</style>",
                      '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run scenarios again and record the results")
    parser.add_argument("--draw", action="store_true", help="draw docs/demo.svg")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *sorted(file.stem for file in RESULTS.glob("*.json"))])
    args = parser.parse_args()
    if args.record and not args.names:
        parser.error("--record needs the names of results")
    if args.draw:
        (ROOT / "docs/demo.svg").write_text(draw())
    for name in args.names:
        print(run_again(name, args.record), flush=True)
    return 0 if args.draw or args.names else check()


if __name__ == "__main__":
    sys.exit(main())
