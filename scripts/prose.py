#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks plain language, as far as a machine can.

    scripts/prose.py            prints each violation; exit code 1 if a limit is exceeded
    scripts/prose.py --figures  only print the figures

Pages (README, ARCHITECTURE, CONTRIBUTING, docs/) have short sentences. Doc comments begin with a noun or a verb, not with a
pronoun. Names of tests state a behaviour. Tables and code are ignored.
"""

import pathlib
import re
import subprocess
import sys

LONG = 35  # words
PAGE_MEAN_MAX = 15.0  # words a sentence, over all pages
PAGE_LONG_MAX = 0.03  # share of sentences over LONG
COMMENT_LONG_MAX = 15  # sentences over LONG in comments
OPENING_MAX = 0  # doc comments that open with a pronoun

PRONOUNS = "What|Who|Whom|Whose|Where|Which|Whoever|Nobody|Somebody|Something|Everything|Those|Likewise|Neither|Another|It|There|So|None|Same"
OPENING = re.compile(rf"\s*//[/!]\s+({PRONOUNS}|All of|All that)\b")
UNCLEAR_TEST_NAME = re.compile(r"^\s*(?:async )?fn ((?:who|what|whose|whoever|whom|nobody|somebody|where|whether|it|all_of|all_that|of|later|another|those|neither|none)_\w+)\(\)")

LIST_ENTRY = re.compile(r"([-*]|\d+\.)\s")


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(name) for name in listed.split("\0") if name and pathlib.Path(name).exists()]


def sentences(text):
    """Yields the sentences of a paragraph and their word counts, without code and the targets of links."""
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z*(\"'\[])|(?<=:)\s*$", text):
        words = re.findall(r"[\w'’–-]*[A-Za-z0-9][\w'’–-]*", sentence)
        if words:
            yield sentence, len(words)


def paragraphs(page):
    """Yields (line, text) of each paragraph and list entry of a page."""
    text, start, in_code = [], 0, False
    for number, line in enumerate(page.read_text().splitlines() + [""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            line = ""
        ends = in_code or not line.strip() or re.match(r"\s*([-*#|>]|\d+\.)\s?", line) or line.startswith("    ")
        if ends and text:
            yield start, " ".join(text)
            text = []
        if in_code or not line.strip() or line.lstrip().startswith(("|", "#", "<")) or line.startswith("    "):
            continue
        if not text:
            start = number
        text.append(re.sub(r"^\s*([-*>]|\d+\.)\s+", "", line).strip())


def comments(source):
    """Yields (line, text) of each block of comment lines."""
    text, start, in_code = [], 0, False
    for number, line in enumerate(source.splitlines() + [""], 1):
        match = re.match(r"\s*//[/!]?\s?(.*)", line)
        body = match.group(1).strip() if match else ""
        if body.startswith("```"):
            in_code = not in_code
        is_prose = body and not in_code and not body.startswith(("#", "|", "```", "SPDX"))
        if text and (not is_prose or LIST_ENTRY.match(body)):
            yield start, " ".join(text)
            text = []
        if is_prose:
            start = start if text else number
            text.append(body)


def main():
    pages = [pathlib.Path(name) for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + files("docs/*.md")
    lengths, long_sentences = [], []
    for page in pages:
        for line, text in paragraphs(page):
            for sentence, words in sentences(text):
                lengths.append(words)
                if words > LONG:
                    long_sentences.append(f"{page}:{line}: {words} words: {sentence[:80]}")
    openings, unclear_names, long_comments = [], [], []
    for path in files("crates/*.rs", "fuzz/*.rs"):
        source = path.read_text()
        previous = ""
        for number, line in enumerate(source.splitlines(), 1):
            is_first = not re.match(r"\s*//[/!]", previous) or previous.strip() in ("///", "//!")
            if is_first and OPENING.match(line):
                openings.append(f"{path}:{number}: {line.strip()[:100]}")
            if UNCLEAR_TEST_NAME.match(line):
                unclear_names.append(f"{path}:{number}: {line.strip()[:100]}")
            previous = line
        for line, text in comments(source):
            long_comments += [f"{path}:{line}: {n} words: {s[:80]}" for s, n in sentences(text) if n > LONG]
    mean, share = sum(lengths) / len(lengths), len(long_sentences) / len(lengths)
    print(f"pages: {len(lengths)} sentences, {mean:.1f} words on average, {share:.1%} over {LONG}")
    print(f"comments: {len(openings)} open with a pronoun, {len(long_comments)} sentences over {LONG} words; {len(unclear_names)} test names state no behaviour")
    if "--figures" in sys.argv:
        return 0
    violations = []
    if mean > PAGE_MEAN_MAX or share > PAGE_LONG_MAX:
        violations += long_sentences + ["pages: sentences are too long"]
    if len(openings) > OPENING_MAX:
        violations += openings + [f"comments: more than {OPENING_MAX} open with a pronoun"]
    if len(long_comments) > COMMENT_LONG_MAX:
        violations += long_comments + [f"comments: more than {COMMENT_LONG_MAX} sentences over {LONG} words"]
    if unclear_names:
        violations += unclear_names + ["tests: a name must state the behaviour"]
    print("\n".join(violations), end="\n" if violations else "", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
