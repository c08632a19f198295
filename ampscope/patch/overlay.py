"""A copy of the user's folder in which the patched files differ: real files for these, links for everything else.

What the script writes beside itself goes into the copy; below linked folders it goes into the user's own.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ampscope.patch.plan import FilePatch
from ampscope.patch.refused import Refused


@dataclass(frozen=True)
class Overlay:
    """`copy` stands for `root`, the folder of the user's that holds every patched file."""

    root: Path
    copy: Path
    patches: tuple[FilePatch, ...]

    def argv(self, words: Sequence[str], cwd: Path) -> list[str]:
        """A command whose paths below the root are those of the copy."""
        return [words[0], *(self._word(word, cwd) for word in words[1:])]

    def cwd(self, cwd: Path) -> Path:
        """The working directory of the copy, where the user's lies below the root; else the user's own."""
        real = Path(os.path.realpath(cwd))
        return self.copy / real.relative_to(self.root) if real.is_relative_to(self.root) else cwd

    def original(self, file: str, line: int | None) -> tuple[str, int | None]:
        """The user's file and line for those of the copy; a line that the patch added has none."""
        path = Path(file)
        if not path.is_relative_to(self.copy):
            return file, line
        mine = self.root / path.relative_to(self.copy)
        for patch in self.patches:
            if Path(os.path.realpath(patch.path)) == mine and line is not None:
                return str(patch.path), self._lines[patch.path].get(line)
        return str(mine), line

    @cached_property
    def _lines(self) -> dict[Path, dict[int, int]]:
        return {patch.path: _line_map(patch) for patch in self.patches}

    def _word(self, word: str, cwd: Path) -> str:
        """A word that names an existing path below the root, as the path in the copy."""
        if not word or word.startswith("-"):
            return word
        path = Path(os.path.realpath(cwd / word))
        inside = path != self.root and path.is_relative_to(self.root) and path.exists()
        return str(self.copy / path.relative_to(self.root)) if inside else word


def make_overlay(copy: Path, cwd: Path, patches: Iterable[FilePatch], words: Sequence[str]) -> Overlay:
    """Build the copy in the empty folder `copy`, for a command that runs in `cwd`.

    The root is `cwd` when every patched file and script lies below it, else the folder that they share. Raises
    Refused where that would be a whole file system.
    """
    made = tuple(patches)
    scripts = [
        Path(os.path.realpath(cwd / w)) for w in words[1:] if w.endswith(".py") and (cwd / w).is_file()
    ]
    files = [Path(os.path.realpath(patch.path)) for patch in made]
    root = _root(Path(os.path.realpath(cwd)), [*files, *scripts])
    contents = {file: patch.after for file, patch in zip(files, made, strict=True)}
    # Python resolves links of the script it is given: a linked one would import from the user's own folder.
    contents |= {script: script.read_bytes() for script in scripts if script not in contents}
    _fill(root, copy, contents)
    return Overlay(root, copy, made)


def _root(cwd: Path, files: Sequence[Path]) -> Path:
    if all(file.is_relative_to(cwd) for file in files):
        root = cwd
    else:
        root = Path(os.path.commonpath([str(file.parent) for file in files]))
    if root == Path(root.anchor) or root == Path.home():
        raise Refused(f"the patched files share no folder below {root}")
    return root


def _fill(root: Path, copy: Path, contents: dict[Path, bytes]) -> None:
    folders = {parent for file in contents for parent in file.parents if parent.is_relative_to(root)}
    for folder in sorted(folders):
        there = copy / folder.relative_to(root)
        there.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if entry not in contents and entry not in folders and entry.name != "__pycache__":
                (there / entry.name).symlink_to(entry)
    for file, data in contents.items():
        (copy / file.relative_to(root)).write_bytes(data)


def _line_map(patch: FilePatch) -> dict[int, int]:
    """Line after the patch to line before it, for the lines that it kept or rewrote one for one."""
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (patch.before, patch.after))
    lines: dict[int, int] = {}
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            # A rewritten group may be longer than what it replaces: its last lines belong together.
            shift = 0 if kind == "equal" else max(0, (d - c) - (b - a))
            for offset in range(c + shift, d):
                lines[offset + 1] = a + offset - c - shift + 1
    return lines
