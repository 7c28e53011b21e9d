#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""schema.py: checks that each schema in dist/ accepts the files of the repository that it is for, and refuses each of their
keys when it is misspelt."""

import json
import re
import sys
import tomllib
from glob import glob

import jsonschema

# Of each schema: its files, and the keys whose names their authors choose.
SCHEMAS = {
    "relay": (["dist/relay.toml"], r"(peer|profile)\.[^.]+"),
    "link": (["docs/link.md"], r"(?!)"),
    "scenario": (
        ["docs/lab.md", *glob("crates/lab/scenarios/*.toml"), *glob("bench/*.toml")],
        r"(parameters|quick|matrix|overrides|include\.(values|set)|sysctl|hosts\.[^.]+\.sysctl|derived)\..+"
        r"|(hosts|relays|decp)\.[^.]+"
        r"|relays\.[^.]+\.config\.(peer|profile)\.[^.]+"
        r"|(check\.for_each|answer\.(cell|baseline)|reference\.(cell|figures|table\.(columns|rows))|(table|figure)\.filter)\..+",
    ),
}


def read(name):
    """Returns the tables of a file: of a page, those of its example; of the reference, also those in comments, each at its
    example or default."""
    with open(name) as file:
        text = file.read()
    if name.endswith(".md"):
        text = re.search(r"```toml\n(#:schema .*?)```", text, re.S)[1]
    if not text.startswith("#:schema /usr/share/longhaul/"):
        raise ValueError(f"{name} does not begin with the path of its schema")
    if name == "dist/relay.toml":
        text = re.sub(r"^#(?=[\[\w\"])", "", text, flags=re.M)
    return tomllib.loads(text)


def misspelt(value):
    """Yields the name of each key with a copy of the value in which it is misspelt."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            for key, other in misspelt(item):
                yield key, value[:index] + [other] + value[index + 1:]
    elif isinstance(value, dict):
        for key, item in value.items():
            rest = {name: kept for name, kept in value.items() if name != key}
            yield key, {**rest, key + "x": item}
            for inner, other in misspelt(item):
                yield f"{key}.{inner}", {**value, key: other}


def errors(validator, file, chosen):
    """Yields what the schema refuses in a file, and the misspelt keys that it accepts."""
    tables = read(file)
    for error in validator.iter_errors(tables):
        yield f"{'.'.join(map(str, error.path))}: {error.message}"
    for key, other in misspelt(tables):
        if validator.is_valid(other) != bool(re.fullmatch(chosen, key)):
            yield f"{key}: {'not ' if re.fullmatch(chosen, key) else ''}accepted under another name"


def main():
    failed = False
    for name, (files, chosen) in SCHEMAS.items():
        with open(f"dist/{name}.schema.json") as file:
            validator = jsonschema.Draft202012Validator(json.load(file))
        for file in files:
            for error in errors(validator, file, chosen):
                print(f"dist/{name}.schema.json: {file}: {error}", file=sys.stderr)
                failed = True
    return failed


sys.exit(main())
