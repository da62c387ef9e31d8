"""Which files of a program are part of what runs: the entry, and what it imports or starts, as far as its text tells.

An archive also holds tests, other programs and their tools. Pure: texts are parsed, and never run.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

_IMPORTERS = frozenset({"import_module", "__import__", "run_module"})


def reached(trees: Mapping[str, ast.Module], entry: str) -> list[str]:
    """The files that `entry` leads to, with itself. `trees` are all files by their path; where a file imports by a
    name that only the running program knows, all of them.

    A module is looked for beside the entry, which is where Python looks first, else anywhere: the program may have
    added folders to its path.
    """
    home, named = PurePosixPath(entry).parent, defaultdict[str, list[PurePosixPath]](list)
    for path in map(PurePosixPath, trees):
        named[path.parent.name if path.name == "__init__.py" else path.stem].append(path)
    found, waiting = {entry: None}, [entry]
    while waiting:
        present = waiting.pop()
        for wanted in set(_wanted(trees[present], PurePosixPath(present))):
            if wanted is None:
                return list(trees)
            for other in _files(wanted, named[wanted.stem], home) if wanted.name else ():
                if other in trees and other not in found:
                    found[other] = None
                    waiting.append(other)
    return list(found)


def _wanted(tree: ast.Module, path: PurePosixPath) -> Iterator[PurePosixPath | None]:
    """Modules and files that a file names, as paths without or with `.py`; None for one that it computes."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (_module(alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = path.parents[min(level, len(path.parents)) - 1] if level else PurePosixPath()
                origin = base / _module(module) if module else base
                yield origin
                yield from (origin / alias.name for alias in names if alias.name != "*")
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[first, *_]) if name in _IMPORTERS:
                wanted = first.value if isinstance(first, ast.Constant) else None
                yield _module(wanted) if isinstance(wanted, str) else None
            case ast.Constant(value=str(text)) if text.endswith(".py") and "\0" not in text:
                yield PurePosixPath(text)


def _module(name: str) -> PurePosixPath:
    return PurePosixPath(*name.strip(".").split("."))


def _files(wanted: PurePosixPath, alike: Sequence[PurePosixPath], home: PurePosixPath) -> Iterator[str]:
    """The files that make up a module: its own, of those `alike` in name, and those of the packages around it."""
    ends = [wanted] if wanted.suffix == ".py" else [wanted.with_name(f"{wanted.name}.py"), wanted / "__init__.py"]
    there = [path for path in alike if any(path.parts[-len(end.parts) :] == end.parts for end in ends)]
    here = [path for path in there if any(path == home / end for end in ends)]
    for path in here or there:
        yield str(path)
        yield from (str(folder / "__init__.py") for folder in path.parents)
