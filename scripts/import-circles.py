#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""import-circles.py [CRATE…]: fails where files or folders of a crate import each other in a circle; names the arrows.

A file imports the files that define what it names, wherever a `use` or a path takes the name from: a `mod.rs` or
`lib.rs` that only declares modules and re-exports their items is no party. Inside each folder its files and its
subfolders, each as a whole, may not form a circle. Unit tests do not count (`mod tests`, and files that are a module of
tests only). Calls of methods do not count either: which file has the `impl` is not in the text. Circles between crates
need no check: cargo refuses them.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

CRATES = Path(__file__).resolve().parent.parent / "crates"
ROOTS = {"lib.rs", "main.rs", "mod.rs"}
ITEM = re.compile(r"^(?:pub )?(?:(?:async|const|unsafe|extern \"C\") )*"
                  r"(?:struct|enum|union|trait|type|fn|const|static|static mut|macro_rules!) (\w+)", re.M)
USE = re.compile(r"^[ \t]*(?:pub )?use ([^;]+);", re.M)
REEXPORT = re.compile(r"^pub use ([^;]+);|^use ([^;]+);", re.M)
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\n(?:pub(?:\([^)]*\))? )?mod (\w+);", re.M)
COMMENT_OR_LITERAL = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r"|b?r(#*)\".*?\"\1"
    r"|b?\"(?:[^\"\\]|\\.)*\""
    r"|b?'(?:[^'\\\n]|\\[^u]|\\u\{\w+\})'", re.S)
PATH = re.compile(r"(?<![\w:])(\w+(?:::\w+)+)")


def module_of(source, file):
    """The path of the module that a file holds, as a tuple of names."""
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if file.name in ROOTS else parts


def code_of(file):
    """The text of a file without comments, literals and unit tests."""
    text = re.sub(r"pub\([^)]*\)", "pub", COMMENT_OR_LITERAL.sub(" ", file.read_text()))
    return re.split(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub )?mod \w+ \{", text, maxsplit=1, flags=re.M)[0]


def split_list(text):
    """The members of a `{a, b::{c, d}}` list."""
    depth, member = 0, ""
    for character in text + ",":
        if character == "," and depth == 0:
            if member.strip():
                yield member.strip()
            member = ""
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        member += character


def paths_of(tree, prefix=()):
    """The (path, local name) pairs of a `use` tree."""
    tree = tree.strip()
    group = re.fullmatch(r"((?:\w+::)*)\{(.*)\}", tree, re.S)
    if group:
        inner = prefix + tuple(name for name in group[1].split("::") if name)
        for member in split_list(group[2]):
            yield from paths_of(member, inner)
        return
    path, _, alias = tree.partition(" as ")
    path = prefix + tuple(name.strip() for name in path.split("::"))
    if path[-1] == "self":
        path = path[:-1]
    yield path, alias.strip() or path[-1]


class Crate:
    """The modules of a crate, what each defines and under which names it passes on what others define."""

    def __init__(self, folder):
        self.source = folder / "src"
        files = [file for file in sorted(self.source.rglob("*.rs")) if file.stem != "tests" and "tests" not in file.parts]
        self.files = {module_of(self.source, file): file for file in files}
        tests = {module + (name,) for module, file in self.files.items() for name in TEST_MODULE.findall(file.read_text())}
        self.files = {module: file for module, file in self.files.items()
                      if not any(module[: len(test)] == test for test in tests)}
        self.code = {module: code_of(file) for module, file in self.files.items()}
        self.items = {module: set(ITEM.findall(code)) for module, code in self.code.items()}
        self.names = {module: dict(self.names_of(code)) for module, code in self.code.items()}

    @staticmethod
    def names_of(code):
        for found in REEXPORT.finditer(code):
            for path, name in paths_of(found[1] or found[2]):
                yield (name if name != "*" else "*" + "::".join(path[:-1])), path

    def absolute(self, module, path):
        """A path as it counts from the crate's root; None for one of another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] in ("self", "super"):
            ups = sum(1 for name in path if name == "super")
            rest = tuple(name for name in path if name not in ("self", "super"))
            return module[: len(module) - ups] + rest
        if module + path[:1] in self.files:
            return module + path
        known = self.names[module].get(path[0])
        if known and known[0] != path[0]:
            base = self.absolute(module, known)
            return base + path[1:] if base is not None else None
        return None

    def owner(self, path, seen=()):
        """The module that defines what an absolute path names; None where no file of the crate does."""
        for length in range(len(path), -1, -1):
            module, rest = path[:length], path[length:]
            if module in self.files:
                return self.owner_in(module, rest, seen)
        return None

    def owner_in(self, module, rest, seen):
        if not rest or rest[0] == "*":
            return module if self.items[module] else None
        if rest[0] in self.items[module]:
            return module
        sources = [path for name, path in self.names[module].items() if name == rest[0]]
        sources += [path[:-1] + rest[:1] for name, path in self.names[module].items() if name.startswith("*")]
        for source in sources:
            base = self.absolute(module, source) if source[0] in ("crate", "self", "super") or module + source[:1] in self.files else None
            if base is not None and (base, rest) not in seen:
                found = self.owner(base + rest[1:], (*seen, (base, rest)))
                if found is not None:
                    return found
        return None

    def arrows(self):
        """For each module the modules that it imports, with the names that it takes from each."""
        arrows = defaultdict(lambda: defaultdict(set))
        for module, code in self.code.items():
            for path in self.paths_in(code):
                target = self.absolute(module, path)
                owner = self.owner(target) if target is not None else None
                if owner is not None and owner != module:
                    arrows[module][owner].add(path[-1])
        return arrows

    @staticmethod
    def paths_in(code):
        # What a file takes from its own modules and only passes on ties nothing together.
        body = re.sub(r"^pub use [^;]+;", "", code, flags=re.M)
        for found in USE.finditer(body):
            yield from (path for path, _ in paths_of(found[1]))
        for found in PATH.finditer(USE.sub("", body)):
            yield tuple(found[1].split("::"))


def circles(arrows, modules):
    """The strongly connected sets of more than one module (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in arrows.get(module, ()):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            circle = []
            while not circle or circle[-1] != module:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in modules:
        if module not in index:
            visit(module)
    return found


def units_of(folder, arrows, modules):
    """The arrows between the files and subfolders of a folder, each with the arrows between files that make it."""
    def unit(module):
        return module[: len(folder) + 1]

    inside = [module for module in modules if module[: len(folder)] == folder]
    between = defaultdict(lambda: defaultdict(list))
    for module in inside:
        for target, names in arrows[module].items():
            if target in inside and unit(target) != unit(module):
                between[unit(module)][unit(target)].append((module, target, names))
    return between


def report(crate, folder, circle, between):
    def name(module):
        return str(crate.files[module].relative_to(crate.source))

    print(f"{crate.source.parent.name}: circle of {len(circle)} in {'/'.join(('src', *folder))}")
    for unit in circle:
        for target in sorted(set(between[unit]) & set(circle)):
            for source, owner, names in between[unit][target]:
                print(f"  {name(source)} -> {name(owner)}: {', '.join(sorted(names))}")


def report_circles(crate):
    """Prints the circles of a crate and returns how many it has."""
    arrows = crate.arrows()
    count = 0
    for folder in sorted({module[:-1] for module in crate.files if module}):
        between = units_of(folder, arrows, crate.files)
        for circle in circles(between, list(between)):
            count += 1
            report(crate, folder, circle, between)
    return count


def main():
    sys.setrecursionlimit(10_000)
    chosen = sys.argv[1:] or sorted(folder.name for folder in CRATES.iterdir())
    count = sum(report_circles(Crate(CRATES / name)) for name in chosen)
    if count:
        sys.exit(f"{count} circles of imports: move what both need into a file below both, or pass a value")


main()
