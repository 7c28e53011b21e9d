#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""import-cycles.py [CRATE…]: fails if files or directories of a crate import each other in a cycle, and lists the imports.

A file imports the files that define the items it names, also through re-exports: a `mod.rs` or `lib.rs` that only declares
modules and re-exports their items does not count. The files and the subdirectories of a directory, each as a whole, may not
form a cycle. Unit tests do not count (`mod tests`, and files with a module of tests only). Method calls do not count,
because the text does not say which file has the `impl`. Cargo refuses cycles between crates.
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
    """The module path of a file, as a tuple of names."""
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if file.name in ROOTS else parts


def code_of(file):
    """The source of a file without comments, literals and unit tests."""
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
    """The modules of a crate, with the items that each defines and the names that it imports or re-exports."""

    def __init__(self, directory):
        self.source = directory / "src"
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
        for match in REEXPORT.finditer(code):
            for path, name in paths_of(match[1] or match[2]):
                yield (name if name != "*" else "*" + "::".join(path[:-1])), path

    def absolute(self, module, path):
        """Resolves a path from the crate's root. Returns None for a path of another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] in ("self", "super"):
            levels = sum(1 for name in path if name == "super")
            rest = tuple(name for name in path if name not in ("self", "super"))
            return module[: len(module) - levels] + rest
        if module + path[:1] in self.files:
            return module + path
        imported = self.names[module].get(path[0])
        if imported and imported[0] != path[0]:
            base = self.absolute(module, imported)
            return base + path[1:] if base is not None else None
        return None

    def owner(self, path, seen=()):
        """The module that defines the item of an absolute path; None if no file of the crate does."""
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

    def imports(self):
        """Returns the modules that each module imports, with the names from each."""
        imports = defaultdict(lambda: defaultdict(set))
        for module, code in self.code.items():
            for path in self.paths_in(code):
                target = self.absolute(module, path)
                owner = self.owner(target) if target is not None else None
                if owner is not None and owner != module:
                    imports[module][owner].add(path[-1])
        return imports

    @staticmethod
    def paths_in(code):
        # Re-exports do not count as imports.
        body = re.sub(r"^pub use [^;]+;", "", code, flags=re.M)
        for match in USE.finditer(body):
            yield from (path for path, _ in paths_of(match[1]))
        for match in PATH.finditer(USE.sub("", body)):
            yield tuple(match[1].split("::"))


def find_cycles(imports, modules):
    """Finds the strongly connected components of more than one module (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in imports.get(module, ()):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            component = []
            while not component or component[-1] != module:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for module in modules:
        if module not in index:
            visit(module)
    return found


def directory_imports(directory, imports, modules):
    """Returns the imports between the entries of a directory, each with the imports between files that it consists of."""
    def entry(module):
        return module[: len(directory) + 1]

    inside = [module for module in modules if module[: len(directory)] == directory]
    between = defaultdict(lambda: defaultdict(list))
    for module in inside:
        for target, names in imports[module].items():
            if target in inside and entry(target) != entry(module):
                between[entry(module)][entry(target)].append((module, target, names))
    return between


def print_cycle(crate, directory, cycle, between):
    def name(module):
        return str(crate.files[module].relative_to(crate.source))

    print(f"{crate.source.parent.name}: cycle of {len(cycle)} in {'/'.join(('src', *directory))}")
    for entry in cycle:
        for target in sorted(set(between[entry]) & set(cycle)):
            for source, owner, names in between[entry][target]:
                print(f"  {name(source)} -> {name(owner)}: {', '.join(sorted(names))}")


def print_cycles(crate):
    """Prints the cycles of a crate and returns their number."""
    imports = crate.imports()
    count = 0
    for directory in sorted({module[:-1] for module in crate.files if module}):
        between = directory_imports(directory, imports, crate.files)
        for cycle in find_cycles(between, list(between)):
            count += 1
            print_cycle(crate, directory, cycle, between)
    return count


def main():
    sys.setrecursionlimit(10_000)
    names = sys.argv[1:] or sorted(directory.name for directory in CRATES.iterdir())
    count = sum(print_cycles(Crate(CRATES / name)) for name in names)
    if count:
        sys.exit(f"{count} import cycles: move what both files need into a third one, or pass a value")


main()
