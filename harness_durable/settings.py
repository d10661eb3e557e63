"""Settings: a flag, else ``HARNESS_DURABLE_*``, else ``harness-durable.toml``, else the default.

A number that cannot be used warns once and is clamped; a World URL that cannot be used is an error.
``doctor`` prints every value and where it came from; secrets are printed as ``***``."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from harness_durable.errors import BadSetting
from harness_durable.events import Keeping
from harness_durable.origins import APP, FALLBACKS, WORLD, given

_OPENAI = {"upstream_key": "openai_key", "upstream_url": "openai_url"}
"""Who names a provider, and not only Anthropic's, means it for OpenAI's APIs as well."""


class Settings(BaseModel):
    """Every setting, its default and what it is for. What may hold a secret is not in its ``repr``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    world: str = Field(
        WORLD,
        description="where logs live: file:DIR, sqlite:PATH, …",
        repr=False,
    )
    app: str = Field(APP, description="apps on one World never see each other's sessions")
    adapter: str = Field("claude-code", description="the harness that new sessions use")
    sandbox: str = Field("local", description="where harnesses run")
    sandbox_options: dict[str, str] = Field(
        {}, description="a new session's options of its sandbox: NAME=VALUE;NAME=VALUE"
    )
    model: str = Field("claude-sonnet-4-5", description="the model that new sessions use")
    upstream_url: str = Field(
        "https://api.anthropic.com", description="base URL of the model provider", repr=False
    )
    upstream_key: SecretStr | None = Field(None, description="the provider's key; never leaves the worker")
    openai_url: str = Field(
        "https://api.openai.com/v1",
        description="base URL for agents that speak OpenAI's APIs; upstream_url, where that is set",
        repr=False,
    )
    openai_key: SecretStr | None = Field(
        None, description="the key for agents that speak OpenAI's APIs; upstream_key, where that is set"
    )
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
    workspaces: Path | None = Field(
        None, description="this host's folder of workspaces: one below it is found by its name on every host"
    )
    files: Keeping = Field(
        "durable",
        description="a new session's files: durable (in the log), kept (where they are), scratch (new)",
    )
    workspace_ignored: Literal["exclude", "include"] = Field(
        "exclude", description="durable files: whether those that .gitignore names are in"
    )
    workspace_include: tuple[str, ...] = Field(
        (), description="durable files: patterns of what is in, though ignored; separated by ;"
    )
    workspace_exclude: tuple[str, ...] = Field(
        (), description="durable files: patterns of what is not in, separated by ;"
    )
    workspace_git: Literal["include", "exclude"] = Field(
        "include", description="durable files: whether the repository's own .git is in"
    )
    workspace_max_file: int = Field(
        64 << 20, ge=1, le=1 << 40, description="durable files: a larger file (bytes) is left out"
    )
    workspace_max_total: int = Field(
        2 << 30, ge=1, le=1 << 44, description="durable files: a larger workspace (bytes) is refused"
    )
    workspace_max_files: int = Field(
        200_000, ge=1, le=1 << 30, description="durable files: a workspace of more files is refused"
    )
    workspace_max_step: int = Field(
        256 << 20, ge=1, le=1 << 40, description="durable files: more new bytes at once are not saved"
    )
    workspace_timeout_seconds: float = Field(
        60.0, ge=1, le=86400, description="durable files: how long it may take to save them"
    )
    workspace_setup: str = Field(
        "", description="shell command after files were restored in an empty place, such as npm ci"
    )
    lease_seconds: float = Field(
        15.0, ge=1, le=3600, description="how long a worker nobody hears of keeps its sessions"
    )
    concurrency: int = Field(4, ge=1, le=256, description="sessions that one worker drives at once")
    drain_seconds: float = Field(
        5.0, ge=0, le=86400, description="how long turns may settle when a worker is told to stop"
    )
    on_stop: Literal["end", "keep"] = Field(
        "end", description="keep: agents that run when a worker is told to stop are left to the next one here"
    )
    permission_patience_seconds: float = Field(
        600.0, ge=1, le=604800, description="how long an agent waits for an answer before it is parked"
    )
    store_patience_seconds: float = Field(
        120.0, ge=1, le=86400, description="a store away for longer ends the worker, with an error"
    )
    health: str = Field("", description="HOST:PORT at which a worker tells its health; empty: nowhere")
    health_log_seconds: float = Field(
        60.0, ge=1, le=86400, description="how often a busy worker writes a line of health into its log"
    )
    orphan_ttl_seconds: float = Field(
        3600.0, ge=10, le=604800, description="how long a keeper waits for a worker before it ends its life"
    )


def check_run_dir(run_dir: Path) -> None:
    """Before anything is stored that only a life could work on: raises ``BadSetting`` if none could be
    started there."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=run_dir):
            pass
    except OSError as error:
        raise BadSetting(
            f"the run directory {run_dir} cannot be used: {error.strerror or error}; make it writable, "
            "or name another one with HARNESS_DURABLE_RUN_DIR"
        ) from None


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
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for source, found in given(Settings.model_fields, flags, environ, folder):
        unknown = sorted(set(found) - set(Settings.model_fields))
        if unknown and source != "flag":
            raise BadSetting(
                f"{source} has unknown settings: {', '.join(unknown)}; correct or remove them (known: "
                f"{', '.join(Settings.model_fields)})"
            )
        for key, value in {**_for_openai(source, found), **found}.items():
            values[key], origins[key] = value, source
    values = {key: _clamped(key, value, origins[key]) for key, value in values.items()}
    try:
        return Resolved(settings=Settings(**values), origins=origins)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise BadSetting(
            f"{key} (from {origins.get(key, 'a flag')}) cannot be used: {first['msg']}; "
            "correct it there, or remove it for the default"
        ) from None


def _for_openai(source: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What a source says of the provider that counts for OpenAI's APIs, too."""
    theirs = source in FALLBACKS.values()
    return {} if theirs else {_OPENAI[key]: found[key] for key in _OPENAI if key in found}


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
