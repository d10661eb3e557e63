"""What settings are given: by a flag, else by a variable, else by ``harness-durable.toml``.

What surprises: no setting is checked here, for ``settings`` does that with pydantic, which takes longer to
import than a command that only reads takes for all it does. Such a command asks ``where``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness_durable.errors import BadSetting

PREFIX = "HARNESS_DURABLE_"
FILE = "harness-durable.toml"
WORLD = "sqlite:.harness-durable/world.db"
APP = "default"

FALLBACKS = {
    "upstream_key": "ANTHROPIC_API_KEY",
    "upstream_url": "ANTHROPIC_BASE_URL",
    "openai_key": "OPENAI_API_KEY",
    "openai_url": "OPENAI_BASE_URL",
}
"""Variables that people have set already, used when ours is not."""

_LISTS = ("workspace_include", "workspace_exclude")
_PAIRS = ("upstream_headers", "sandbox_options")


def given(
    names: Collection[str],
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each source with what it says of the settings of these names, the weakest first: the file's path with
    all that it holds, a variable's name, ``flag``. Raises ``BadSetting`` for what cannot be read."""
    environ = os.environ if environ is None else environ
    path = (folder or Path.cwd()) / FILE
    yield str(path), _from_file(path)
    variables = [(key, name) for key, name in FALLBACKS.items() if key in names]
    variables += [(key, PREFIX + key.upper()) for key in names]
    for key, name in variables:
        if text := environ.get(name):
            yield name, {key: _parsed(key, text)}
    for key, value in (flags or {}).items():
        if value is not None:
            yield "flag", {key: value}


def where(
    world: str | None,
    app: str | None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[str, str]:
    """The World's URL and the app that are meant, for who needs no other setting: what variables say of
    others is not looked at. A file that holds more is checked as a whole. Raises ``BadSetting``."""
    flags = {"world": world, "app": app}
    values: dict[str, Any] = {"world": WORLD, "app": APP}
    for _, found in given(tuple(flags), flags, environ, folder):
        values.update(found)
    if values.keys() == flags.keys() and all(map(_plain, values.values())):
        return values["world"], values["app"]
    from harness_durable.settings import resolve

    settings = resolve(flags, environ, folder).settings
    return settings.world, settings.app


def _plain(value: Any) -> bool:
    """Text in which nothing is odd; what to say of anything else is for ``settings`` to know."""
    return isinstance(value, str) and value.isprintable()


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from None
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> BadSetting:
    return BadSetting(f"{path} cannot be read: {error}; correct or remove it")


def _parsed(key: str, text: str) -> Any:
    """``NAME=VALUE;NAME=VALUE`` for headers and options, ``A;B`` for lists; all else is left to pydantic."""
    if key in _LISTS:
        return tuple(part.strip() for part in text.split(";") if part.strip())
    if key not in _PAIRS:
        return text
    pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise BadSetting(f"{PREFIX}{key.upper()} cannot be read: write it as NAME=VALUE;NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}
