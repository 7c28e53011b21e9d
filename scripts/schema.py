#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""schema.py: checks that dist/relay.schema.json accepts the reference configuration with every key, and refuses each of its
keys when it is misspelt."""

import json
import re
import sys
import tomllib

import jsonschema

SCHEMA = "dist/relay.schema.json"
REFERENCE = "dist/relay.toml"


def with_every_key(text):
    """Returns the reference with its commented keys and tables, each at its example or default."""
    lines = (re.sub(r"^#(?=[\[\w\"])", "", line) for line in text.splitlines() if not line.startswith("#:"))
    return tomllib.loads("\n".join(lines))


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


def main():
    with open(SCHEMA) as file:
        validator = jsonschema.Draft202012Validator(json.load(file))
    with open(REFERENCE) as file:
        reference = with_every_key(file.read())
    errors = [f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(reference)]
    # Users choose the names of peers and profiles.
    accepted = {key for key, other in misspelt(reference) if validator.is_valid(other)}
    chosen = {f"{table}.{name}" for table in ("peer", "profile") for name in reference[table]}
    errors += [f"{key}: accepted when misspelt" for key in sorted(accepted - chosen)]
    errors += [f"not accepted under another name: {key}" for key in sorted(chosen - accepted)]
    for error in errors:
        print(f"{SCHEMA}: {error}", file=sys.stderr)
    return bool(errors)


sys.exit(main())
