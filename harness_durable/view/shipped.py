"""The files of the page, as they are in the package."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from harness_durable.errors import NotFound


def shipped(name: str) -> bytes:
    """A file of the page. Raises ``NotFound``."""
    file = resources.files("harness_durable.view") / "static" / name
    if "/" in name or name.startswith(".") or not file.is_file():
        raise NotFound(f"there is no file {name!r}; reload the page")
    return file.read_bytes()


@cache
def stamp() -> str:
    """A name for all of them as they are, so that a browser may keep what it has under it."""
    files = sorted((resources.files("harness_durable.view") / "static").iterdir(), key=lambda file: file.name)
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:16]
