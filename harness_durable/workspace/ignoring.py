"""Which names belong to the workspace: own globs, what the repository tracks, then the ``.gitignore`` files.

The deepest ``.gitignore`` that says anything about a name wins, an ignored folder is not entered, and what
a repository tracks is never ignored; as git has it, without running git. Not read: ``core.excludesFile``
and git's global settings, which lie outside the workspace. What surprises: files are only read when a name
is asked about, and names that the stat cache knows are not, as long as ``token`` is the same."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cached_property, lru_cache
from typing import Literal, cast

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

from harness_durable.workspace import gitfolder, gitindex
from harness_durable.workspace.known import Stamp
from harness_durable.workspace.limits import Limits
from harness_durable.workspace.opening import FOLDER, Files, is_racy, look, opened, opened_below

IGNORE = b".gitignore"

_FOLDER_MARK = "ps_d"
"""The group of pathspec's expressions that holds the "/" after a folder that matched."""

_STAR, _STARS = "[^/]*", "(?:/.+)?"
"""How pathspec writes ``*`` within a name, and ``/**`` between names."""
_MOST_STARS = 3
"""``/**/`` in one pattern. Each multiplies the ways to match; nobody means more."""

Verdict = Literal["in", "kept", "ignored", "excluded"]
"""``kept``: ignored, but tracked or included, or something in it is; its other content is ignored."""


class Own:
    """The globs of the settings."""

    def __init__(self, limits: Limits) -> None:
        self._include, self._exclude = (
            GitIgnoreSpec.from_lines(list(globs)) for globs in (limits.include, limits.exclude)
        )
        self._opens = [glob.strip("/") for glob in limits.include if "/" in glob.strip("/")]
        self.all = limits.ignored == "include"
        self.token = hashlib.sha256(repr(limits).encode()).digest()
        """Other settings, other rules."""

    def excludes(self, path: bytes) -> bool:
        return bool(self._exclude) and self._exclude.match_file(os.fsdecode(path))

    def includes(self, path: str) -> bool:
        return bool(self._include) and self._include.match_file(path)

    def may_include_below(self, folder: str) -> bool:
        return any(glob.startswith(folder) for glob in self._opens)


class Repository:
    """What a folder's ``.git`` says. ``at`` is a descriptor of that folder, ``path`` its path ("" or with
    "/")."""

    def __init__(self, files: Files, root: int, at: int, path: bytes, *, is_file: bool) -> None:
        self._files, self._root, self._at, self.path = files, root, at, path
        self.problem = ""
        """Why nothing of it is known, for people."""
        self._git: bytes | None = path + gitfolder.NAME
        if is_file:
            pointer = files.small(gitfolder.NAME, at, 1 << 16)
            self._git = gitfolder.pointed(pointer or b"", path)
            if self._git is None:
                self.problem = "its repository is outside and not saved"

    def stamps(self) -> list[Stamp | None]:
        """Of what the rules depend on."""
        try:
            with opened_below(self._root, self._git or b"..") as git:
                found = [look(b"index", git)]
                with opened(b"info", git, FOLDER) as info:
                    return [*found, look(b"exclude", info)]
        except OSError:
            return []

    @cached_property
    def exclude(self) -> GitIgnoreSpec:
        try:
            with opened_below(self._root, (self._git or b"..") + b"/info") as info:
                return _spec(self._files.small(b"exclude", info))
        except OSError:
            return _spec(None)

    @cached_property
    def tracked(self) -> frozenset[bytes]:
        """Paths below the repository's folder. Nothing if its index cannot be read."""
        try:
            with opened_below(self._root, self._git or b"..") as git:
                if look(b"index", git) is None:
                    return frozenset()
                raw = self._files.small(b"index", git)
        except OSError:
            return frozenset()
        found = gitindex.tracked(raw or b"")
        if found is None:
            self.problem = "the list of tracked files is of an unknown form, so ignored ones are not saved"
        return found or frozenset()


class Rules:
    """The rules within one folder; ``at`` is its descriptor, and must be open while names are asked about."""

    def __init__(self, own: Own, token: bytes, above: Rules | None = None) -> None:
        self._own, self.token, self._above = own, token, above
        self._files: Files | None = None
        self._at, self._path = -1, b""
        self.repository: Repository | None = above.repository if above else None

    def below(
        self, files: Files, root: int, at: int, path: bytes, found: dict[bytes, os.stat_result], now_ns: int
    ) -> Rules:
        """The rules of a folder with these names; the same ones if it adds none."""
        git, ignore = found.get(gitfolder.NAME), IGNORE in found
        if git is None and not ignore:
            return self
        # Within a repository of its own, what is around it does not count.
        rules = Rules(self._own, self.token, None if git is not None else self)
        rules._files, rules._at, rules._path = files, at, path
        stamps: list[Stamp | None] = [look(IGNORE, at)] if ignore else []
        if git is not None:
            is_file = (git.st_mode & 0o170000) == 0o100000
            rules.repository = Repository(files, root, at, path, is_file=is_file)
            stamps += rules.repository.stamps()
        racy = not self.token or any(mark and is_racy(mark, now_ns) for mark in stamps)
        rules.token = b"" if racy else hashlib.sha256(self.token + path + repr(stamps).encode()).digest()
        return rules

    def judge(self, path: bytes, *, is_folder: bool, inside: bool, in_git: bool) -> Verdict:
        """``path`` is below the workspace; ``inside``: its folder is an ignored one."""
        own, full = self._own, path + b"/" if is_folder else path
        if own.excludes(full):
            return "excluded"
        if own.all or in_git or not (inside or self._ignores(path, is_folder)):
            return "in"
        text = os.fsdecode(full)
        if own.includes(text):
            return "in"
        if self._tracks(path) or (is_folder and own.may_include_below(text)):
            return "kept"
        return "ignored"

    def _tracks(self, path: bytes) -> bool:
        repository = self.repository
        return repository is not None and path[len(repository.path) :] in repository.tracked

    def _ignores(self, path: bytes, is_folder: bool) -> bool:
        rules: Rules | None = self
        while rules is not None:
            if rules._files is not None:
                said = _says(rules._spec, path[len(rules._path) :], is_folder)
                if said is not None:
                    return said
            rules = rules._above
        repository = self.repository
        if repository is None:
            return False
        return _says(repository.exclude, path[len(repository.path) :], is_folder) is True

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        assert self._files is not None
        return _spec(self._files.small(IGNORE, self._at, 1 << 20))


def _says(spec: GitIgnoreSpec, path: bytes, is_folder: bool) -> bool | None:
    """What the last pattern that matches says: ignored, not ignored, nothing. A pattern that matches a
    folder above says nothing about what is in it: if that is ignored, it is not entered; if ``!*/`` brought
    it back, its files were not."""
    text = os.fsdecode(path) + ("/" if is_folder else "")
    for pattern in reversed(list(spec.patterns)):
        if pattern.include is not None and _is_meant(pattern, text):
            return pattern.include
    return None


def _is_meant(pattern: RegexPattern, text: str) -> bool:
    """Whether a pattern matches this path, and not only a folder above it; nor, as ``x/**``, only what is
    in it."""
    # The patterns are text; pathspec leaves the type of its expressions open.
    given = cast("re.Pattern[str] | None", pattern.regex)  # pyright: ignore[reportUnknownMemberType]
    if given is None:
        return False
    regex = _tamed(given)
    if regex is None:
        return False
    if _FOLDER_MARK in regex.groupindex:
        return any(found.end(_FOLDER_MARK) in (-1, len(text)) for found in regex.finditer(text))
    found = regex.search(text)
    return found is not None and not (text.endswith("/") and found.end() == len(text))


@lru_cache(maxsize=4096)
def _tamed(regex: re.Pattern[str]) -> re.Pattern[str] | None:
    """The same expression, which no name can keep busy: ``*a*a*a*a*b`` on a name of many "a" takes hours, and
    no other thread runs meanwhile. What stands between two stars has a fixed length, so its first place is as
    good as any later one, and is not looked for again. None for a pattern that cannot be helped."""
    if regex.pattern.count(_STARS) > _MOST_STARS:
        return None
    first, *parts = regex.pattern.split(_STAR)
    if len(parts) < 2:
        return regex
    *middle, last = parts
    made = [f"(?>[^/]*?{part})" if _STARS not in part else f"{_STAR}{part}" for part in middle]
    return re.compile("".join([first, *made, _STAR, last]), regex.flags)


def _spec(raw: bytes | None) -> GitIgnoreSpec:
    """Patterns of a file's bytes. One that cannot be read says nothing; a pattern that is none is passed
    over."""
    lines = [line.rstrip("\r") for line in os.fsdecode(raw or b"").removeprefix("\ufeff").split("\n")]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
