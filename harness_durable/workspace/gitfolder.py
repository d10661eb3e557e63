"""A repository's own ``.git``: saved as plain files, never locked, written or executed.

Running any git command there would run programs that its config names (``core.fsmonitor``), so an agent in
a sandbox would run code in our worker. What surprises: the order. git writes objects before the refs that
name them, and packs before it removes what it packed; so refs are read first, loose objects next and packs
last, and what the refs name is there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

NAME = b".git"
REDACTED = b"REDACTED"
CONFIGS = frozenset({b"config", b"config.worktree"})

_ROOT = {b"HEAD", b"objects", b"refs"}
_SKIPPED = re.compile(rb".*\.lock|tmp_obj_.*|tmp_pack_.*|\.tmp-.*|gc\.pid|fsmonitor.*", re.DOTALL)
_LAST = {b"objects": 1, b"pack": 1}
_FIRST = {b"HEAD": -3, b"refs": -2, b"packed-refs": -1}

# A config's line: perhaps a section in brackets, a name, a value that a backslash continues on the next line.
_SETTING = re.compile(
    rb'^(?P<lead>[ \t]*(?:\[(?:[^\]"\n]|"(?:[^"\\\n]|\\.)*")*\][ \t]*)?'
    rb"(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*)"
    rb"(?P<value>(?:\\\r?\n|[^\n])*)",
    re.MULTILINE,
)
_SECRET = re.compile(
    rb"(?i).*(extraheader|pass|password|passwd|passphrase|token|secret|apikey|authorization)"
)
_USER = re.compile(rb'(?i)\b((?:https?|ftps?)://)[^/\s@"]+@|\b([a-z][a-z0-9+.-]*://[^/\s@":]*):[^/\s@"]*@')


def is_repository(names: Mapping[bytes, object] | set[bytes]) -> bool:
    """Whether a folder with these names is a repository's own: a ``.git``, a bare one, one of a submodule."""
    return all(name in names for name in _ROOT)


def is_skipped(name: bytes) -> bool:
    """Locks and half-written files of a git that runs at the moment; a restored lock would stop every later
    one."""
    return _SKIPPED.fullmatch(name) is not None


def ordered(found: Mapping[bytes, os.stat_result]) -> list[tuple[bytes, os.stat_result]]:
    """What counts in a folder of a ``.git``, in the order in which it must be read."""
    counts = [item for item in found.items() if not is_skipped(item[0])]
    return sorted(counts, key=lambda item: _FIRST.get(item[0], _LAST.get(item[0], 0)))


def redact(config: bytes) -> tuple[bytes, bool]:
    """A config without credentials, and whether there were any (also before: what was redacted remains
    so)."""
    clean = _SETTING.sub(_without_value, config)
    clean = _USER.sub(_without_user, clean)
    return clean, clean != config or REDACTED in clean


def _without_value(found: re.Match[bytes]) -> bytes:
    name, value = found["name"], found["value"]
    program = name.lower() == b"helper" and value.lstrip(b' "').startswith(b"!")
    if not value.strip() or not (program or _SECRET.fullmatch(name)):
        return found[0]
    return found["lead"] + REDACTED


def _without_user(found: re.Match[bytes]) -> bytes:
    return (found[1] or found[2] + b":") + REDACTED + b"@"


def pointed(content: bytes, folder: bytes) -> bytes | None:
    """Where a ``.git`` *file* (of a worktree, a submodule) in ``folder`` says that the repository is: a
    path below the workspace; None if it is outside or not said."""
    if not content.startswith(b"gitdir:"):
        return None
    said = content[len(b"gitdir:") :].strip()
    if said.startswith(b"/"):
        return None
    parts = [part for part in folder.split(b"/") if part]
    for part in said.split(b"/"):
        if part == b"..":
            if not parts:
                return None
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)
