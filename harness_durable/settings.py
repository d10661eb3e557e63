"""Settings: a flag, else ``HARNESS_DURABLE_*``, else ``harness-durable.toml``, else the default.

A number that cannot be used warns once and is clamped; a World URL that cannot be used is an error.
``doctor`` prints every value and where it came from; secrets are printed as ``***``."""

from __future__ import annotations

import math
import os
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from harness_durable.errors import BadSetting

PREFIX = "HARNESS_DURABLE_"
FILE = "harness-durable.toml"

_FALLBACKS = {"upstream_key": "ANTHROPIC_API_KEY", "upstream_url": "ANTHROPIC_BASE_URL"}
"""Variables that people have set already, used when ours is not."""


class Settings(BaseModel):
    """Every setting, its default and what it is for. What may hold a secret is not in its ``repr``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    world: str = Field(
        "sqlite:.harness-durable/world.db",
        description="where logs live: file:DIR, sqlite:PATH, …",
        repr=False,
    )
    app: str = Field("default", description="apps on one World never see each other's sessions")
    adapter: str = Field("claude-code", description="the harness that new sessions use")
    sandbox: str = Field("local", description="where harnesses run")
    model: str = Field("claude-sonnet-4-5", description="the model that new sessions use")
    upstream_url: str = Field(
        "https://api.anthropic.com", description="base URL of the model provider", repr=False
    )
    upstream_key: SecretStr | None = Field(None, description="the provider's key; never leaves the worker")
    upstream_headers: dict[str, str] = Field({}, description="further headers for the provider", repr=False)
    upstream_auth: Literal["key", "login"] = Field(
        "key", description="login: pass the harness's own login through, which then enters the sandbox"
    )
    harness_dir: Path = Field(
        Path(platformdirs.user_data_dir("harness-durable")) / "harnesses",
        description="managed harness binaries",
    )
    run_dir: Path = Field(
        Path(platformdirs.user_state_dir("harness-durable")) / "run",
        description="run directories and homes of lives",
    )
    lease_seconds: float = Field(
        15.0, ge=1, le=3600, description="how long a worker nobody hears of keeps its sessions"
    )
    concurrency: int = Field(4, ge=1, le=256, description="sessions that one worker drives at once")


class Resolved(BaseModel):
    """Settings, and for each where it came from: ``flag``, a variable's name, a file's path, or
    ``default``."""

    settings: Settings
    origins: dict[str, str]


def resolve(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Resolved:
    """Read all sources once. Raises ``BadSetting`` for a value that cannot be used."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for source, found in (
        *_from_file((folder or Path.cwd()) / FILE),
        *_from_environ(environ),
        *(("flag", {key: value}) for key, value in (flags or {}).items() if value is not None),
    ):
        for key, value in found.items():
            values[key], origins[key] = value, source
    values = {key: _clamped(key, value, origins[key]) for key, value in values.items()}
    try:
        return Resolved(settings=Settings(**values), origins=origins)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise BadSetting(
            f"{key} (from {origins.get(key, 'a flag')}) cannot be used: {first['msg']}; "
            f"see `harness-durable doctor` for every setting"
        ) from None


def _from_file(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadSetting(f"{path} cannot be read: {error}; correct or remove it") from None
    unknown = sorted(set(found) - set(Settings.model_fields))
    if unknown:
        raise BadSetting(f"{path} has unknown settings: {', '.join(unknown)}; see `harness-durable doctor`")
    return [(str(path), found)]


def _from_environ(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for key in Settings.model_fields:
        for name in (_FALLBACKS.get(key), PREFIX + key.upper()):
            if name is not None and environ.get(name):
                found.append((name, {key: _parsed(key, environ[name])}))
    return found


def _parsed(key: str, text: str) -> Any:
    """``NAME=VALUE;NAME=VALUE`` for headers; everything else is left to pydantic."""
    if key != "upstream_headers":
        return text
    pairs = (pair.partition("=") for pair in text.split(";") if pair.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _clamped(key: str, value: Any, source: str) -> Any:
    """A number out of bounds, or no number at all: warn and use the nearest, or the default."""
    field = Settings.model_fields.get(key)
    kind = cast(type, field.annotation) if field is not None else str
    if field is None or (kind is not int and kind is not float):
        return value
    low, high = (getattr(rule, name) for rule, name in zip(field.metadata, ("ge", "le"), strict=True))
    try:
        number = kind(value)
        number = field.default if math.isnan(number) else number
    except (TypeError, ValueError, OverflowError):
        number = field.default
    clamped = min(max(number, low), high)
    if str(clamped) != str(value) and clamped != _number(value):
        warnings.warn(f"{key} = {value!r} (from {source}) is not usable; {clamped} is used", stacklevel=3)
    return clamped


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
