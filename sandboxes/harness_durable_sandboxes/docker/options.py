"""The options of a session in Docker: which image, how much of the machine, which hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from harness_durable.allowlist import AllowList, allow_list
from harness_durable.errors import BadSetting

IMAGE = "harness-durable/sandbox:1"
"""Ours, made from ``Dockerfile``. The number grows with it, so that sessions keep the one they began with."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All are words, as the log holds them.

    ``memory``, with swap, for all that runs in a life, its /tmp included; ``tmp`` is how large that may
    become. ``cpus`` may be a fraction. ``pids``: processes and threads. ``user``: UID or UID:GID instead of
    the owner of the workspace. ``allow``, ``allow_private``: see ``allowlist``."""

    image: str = IMAGE
    memory: str = "4g"
    tmp: str = "1g"
    cpus: str = "2"
    pids: str = "2048"
    user: str = ""
    allow: str = ""
    allow_private: str = ""

    @property
    def memory_bytes(self) -> int:
        return _size("memory", self.memory, least=64 << 20)

    @property
    def tmp_bytes(self) -> int:
        return _size("tmp", self.tmp, least=1 << 20)

    @property
    def nano_cpus(self) -> int:
        try:
            found = float(self.cpus)
        except ValueError:
            found = 0.0
        if not 0.01 <= found <= 4096:
            raise _bad("cpus", self.cpus, "a number such as 2 or 0.5")
        return int(found * 1e9)

    @property
    def pids_limit(self) -> int:
        if not self.pids.isdigit() or not 16 <= int(self.pids) <= 1 << 22:
            raise _bad("pids", self.pids, "a number from 16 on")
        return int(self.pids)

    @property
    def owner(self) -> tuple[int, int] | None:
        """The user and group that are named, if any."""
        if not self.user:
            return None
        found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", self.user)
        if found is None or not int(found[1]):
            raise _bad("user", self.user, "numbers, UID or UID:GID, of somebody who is not root")
        return int(found[1]), int(found[2] or found[1])

    @property
    def hosts(self) -> AllowList:
        return allow_list(self.allow, self.allow_private)


def options(given: Mapping[str, str]) -> Options:
    """Raises ``BadSetting`` for a name or a value that cannot be used."""
    unknown = sorted(set(given) - set(Options.__struct_fields__))
    if unknown:
        known = ", ".join(Options.__struct_fields__)
        raise BadSetting(
            f"the Docker sandbox has no option {', '.join(unknown)}; correct it or leave it out "
            f"(known: {known})"
        )
    found = Options(**given)
    if not re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", found.image):
        raise _bad("image", found.image, "an image's name, such as python:3.12-slim")
    _ = (found.memory_bytes, found.tmp_bytes, found.nano_cpus, found.pids_limit, found.owner, found.hosts)
    return found


def words(found: Options) -> dict[str, str]:
    """As the log holds them."""
    return {name: str(getattr(found, name)) for name in Options.__struct_fields__}


def _size(name: str, text: str, least: int) -> int:
    found = re.fullmatch(r"(\d{1,12})([kmg]?)b?", text.lower())
    size = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if size < least:
        raise _bad(name, text, f"a size from {least >> 20}m on, such as 512m or 4g")
    return size


def _bad(name: str, value: str, wanted: str) -> BadSetting:
    return BadSetting(f"the sandbox option {name}={value!r} cannot be used; give {wanted}")
