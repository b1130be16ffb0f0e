#!/usr/bin/env python3
"""Finds loops of imports among the modules at the top of each crate.

    tools/loops.py [-v] CRATE...      CRATE is a directory with `src`; -v prints every import of a loop

A module is a file or a folder below `src`. One imports another if a `use` or a path in its code names
an item of it, also by way of `lib.rs` or another module that only passes the item on (`pub use`).
Tests do not count, nor do modules that exist for tests and fuzzing alone. Exits with 1 if there is a loop.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from rust_source import Tree

def paths_of(tree):
    """The paths that a `use` tree names: `a::{b, c::d}` are a::b and a::c::d."""
    tree = re.sub(r"\s+as\s+\w+", "", tree)
    tree = re.sub(r"\s", "", tree)
    group = re.fullmatch(r"([^{]*)\{(.*)\}", tree)
    if not group:
        return [tree.split("::")]
    depth, parts, part = 0, [], ""
    for letter in group[2] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [path for part in parts if part for path in paths_of(group[1] + part)]


class Crate:
    def __init__(self, tree):
        self.code = {}
        for module, _, source in tree.production():
            self.code[module] = self.code.get(module, "") + source.production
        self.modules = {module[:depth] for module in self.code for depth in range(len(module) + 1)}
        self.passed_on = {
            (module, path[-1]): path
            for module, code in self.code.items()
            for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", code)
            for path in paths_of(tree)
        }

    def target(self, module, path, depth=0):
        """The module that defines what a path in `module` names; `None` if it is another crate's."""
        if path[0] == "crate":
            at, path = (), path[1:]
        elif path[0] in ("self", "super") or module + (path[0],) in self.modules:
            at, path = module, path[1:] if path[0] == "self" else path
            while path and path[0] == "super":
                at, path = at[:-1], path[1:]
        else:
            return None
        for name in path:
            if at + (name,) in self.modules:
                at += (name,)
                continue
            further = self.passed_on.get((at, name))
            if further and depth < 8:
                return self.target(at, further, depth + 1) or at
            break
        return at

    def imports(self):
        """Of each pair of modules at the top: where one imports what of the other."""
        imports = defaultdict(list)
        for module, code in self.code.items():
            paths = [path for tree in re.findall(r"\buse\s+([^;]+);", code) for path in paths_of(tree)]
            code = re.sub(r"\buse\s+[^;]+;", "", code)
            paths += [path.split("::") for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", code)]
            for path in paths:
                target = self.target(module, path)
                if module and target and module[0] != target[0]:
                    imports[module[0], target[0]].append(f"{'/'.join(module)}: {'::'.join(path)}")
        return imports


def loops(arrows):
    """The sets of modules that reach each other."""
    reached = defaultdict(set)
    for start in {start for start, _ in arrows}:
        todo = [start]
        while todo:
            here = todo.pop()
            fresh = {to for origin, to in arrows if origin == here} - reached[start]
            reached[start] |= fresh
            todo += fresh
    members = {m: frozenset(o for o in reached[m] if m in reached[o]) for m in list(reached)}
    return {group for group in members.values() if len(group) > 1}


def main(arguments):
    verbose, found = "-v" in arguments, False
    for path in (argument for argument in arguments if argument != "-v"):
        imports = Crate(Tree(Path(path) / "src")).imports()
        for loop in loops(imports.keys()):
            found = True
            print(f"{path}: a loop of imports among {', '.join(sorted(loop))}")
            inside = {pair: uses for pair, uses in imports.items() if set(pair) <= loop}
            for (origin, to), uses in sorted(inside.items(), key=lambda item: len(item[1])):
                shown = uses if verbose else uses[:2]
                print(f"    {origin} -> {to}, {len(uses)}: {'; '.join(shown)}")
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
