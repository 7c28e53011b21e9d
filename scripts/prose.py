#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks plain language, as far as a machine can: prints each violation, and exits with 1 if there is one.

Sentences of pages (README, ARCHITECTURE, CONTRIBUTING, docs/) and comments are short. Doc comments begin with a noun or a verb,
not with a pronoun. Names of tests state a behaviour. Tables and code are ignored.
"""

import re
import subprocess
import sys
from pathlib import Path

WORDS_MAX = 40
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md")
COMMENT = re.compile(r"\s*//[/!]?( .*|$)")
PRONOUN = re.compile(r"\s*//[/!]\s+(What|Who|Whom|Whose|Where|Which|Whoever|Nobody|Somebody|Something|Everything|Those|Likewise|"
                     r"Neither|Another|It|There|So|None|Same|All of|All that)\b")
UNCLEAR_TEST_NAME = re.compile(r"\s*(async )?fn (who|what|whose|whoever|whom|nobody|somebody|where|whether|it|all_of|all_that|of|"
                               r"later|another|those|neither|none)_\w+\(\)")


def read(*patterns):
    """Yields each file of these patterns that git knows, and its lines."""
    for name in subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=True).stdout.splitlines():
        if Path(name).exists():
            yield name, Path(name).read_text().splitlines()


def long_sentences(name, lines):
    """Yields the long sentences of a text, without code and the targets of links."""
    text, start, in_code = "", 0, False
    for number, line in enumerate([*lines, ""], 1):
        in_code ^= line.lstrip().startswith("```")
        begins_entry = re.match(r"\s*([-*>]|\d+\.)\s", line)
        is_prose = line.strip() and not in_code and not re.match(r"    |\s*([|#<]|```)", line)
        if text and (begins_entry or not is_prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "Code", text))
            for sentence in re.split(r"(?<=[.!?])\s", plain):
                if (words := len(re.findall(r"[\w'’–-]*[A-Za-z0-9][\w'’–-]*", sentence))) > WORDS_MAX:
                    yield f"{name}:{start}: {words} words: {sentence.strip()[:80]}"
            text = ""
        if is_prose:
            start = start if text else number
            text += line[begins_entry.end() if begins_entry else 0:].strip() + " "


def violations():
    for name, lines in read(*PAGES):
        yield from long_sentences(name, lines)
    for name, lines in read("crates/*.rs", "fuzz/*.rs"):
        comments = [match[1].removeprefix(" ") if (match := COMMENT.match(line)) else "" for line in lines]
        yield from long_sentences(name, comments)
        for number, line in enumerate(lines, 1):
            if PRONOUN.match(line) and not (number > 1 and comments[number - 2]):
                yield f"{name}:{number}: opens with a pronoun: {line.strip()}"
            if UNCLEAR_TEST_NAME.match(line):
                yield f"{name}:{number}: states no behaviour: {line.strip()}"


found = list(violations())
print("\n".join(found), end="\n" * bool(found))
sys.exit(bool(found))
