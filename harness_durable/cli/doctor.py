"""``harness-durable doctor``: every check with its fix in one line, every setting with where it came from."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal, cast

import click
import msgspec

from harness_durable import registry
from harness_durable.adapter import Adapter, ReadsVariables
from harness_durable.cli.common import (
    asynchronous,
    json_option,
    print_json,
    print_rows,
    world_options,
)
from harness_durable.errors import BadSetting, HarnessDurableError
from harness_durable.sandbox import ChecksItself, Sandbox, TellsIsolation
from harness_durable.settings import Resolved, Settings, check_run_dir, resolve
from harness_durable.worlds import open_world, redact, variables

State = Literal["ok", "warn", "fail"]
_SIGN = {"ok": "✓ ok", "warn": "! warn", "fail": "✗ fail"}


class Check(msgspec.Struct, frozen=True):
    """``detail`` says what is so, and for a failure what to do."""

    name: str
    state: State
    detail: str


@click.command()
@world_options
@click.option("--quick", is_flag=True, help="without starting a harness")
@json_option
@asynchronous
async def doctor(world: str | None, app: str | None, quick: bool, as_json: bool) -> None:
    """Check this machine. Exit code 1 if something is broken."""
    resolved = resolve({"world": world, "app": app})
    checks: list[Check] = []
    async for check in _checks(resolved.settings, quick):
        checks.append(check)
        if as_json:
            print_json({"check": check.name, "state": check.state, "detail": check.detail})
    if as_json:
        for name, value, origin in _settings(resolved) + _variables():
            print_json({"setting": name, "value": value, "from": origin})
    else:
        print_rows(("check", "", "what is so"), [(c.name, _SIGN[c.state], c.detail) for c in checks])
        click.echo()
        print_rows(("setting", "value", "from"), _settings(resolved) + _variables())
    if any(check.state == "fail" for check in checks):
        sys.exit(1)


def _settings(resolved: Resolved) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for name, origin in resolved.origins.items():
        value = getattr(resolved.settings, name)
        shown = redact(value) if name in ("world", "upstream_url", "openai_url") else str(value)
        if name == "upstream_headers":
            shown = ", ".join(f"{header}: ***" for header in value) or "-"
        if name in ("upstream_key", "openai_key"):
            shown = "***" if value is not None else "-"
        rows.append((name, shown, origin))
    return rows


def _variables() -> list[tuple[str, str, str]]:
    """Variables that are no settings of ours, as far as they are set: of the Worlds, and of each adapter."""
    names: list[str] = []
    for scheme in registry.known("world"):
        with suppress(HarnessDurableError):
            names += variables(scheme)
    for name in registry.known("adapter"):
        with suppress(HarnessDurableError):
            adapter: object = registry.load("adapter", name)()
            names += adapter.variables if isinstance(adapter, ReadsVariables) else ()
    return [(name, os.environ[name], "environment") for name in dict.fromkeys(names) if name in os.environ]


async def _checks(settings: Settings, quick: bool) -> AsyncIterator[Check]:
    yield _python()
    yield _system()
    async for check in _world(settings):
        yield check
    usable = _run_dir(settings)
    yield usable
    if usable.state == "ok":
        async for check in sandbox_rows(settings):
            yield check
    yield _provider(settings)
    for name in registry.known("adapter"):
        async for check in _harness(name, quick):
            yield check


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _system() -> Check:
    if sys.platform == "linux":
        return Check("system", "ok", f"Linux {platform.release()}")
    return Check(
        "system",
        "warn",
        f"{platform.system()} is not tested: without PID namespaces and PDEATHSIG a harness's children may "
        "outlive it",
    )


async def _world(settings: Settings) -> AsyncIterator[Check]:
    try:
        world = await open_world(settings.world, settings.app)
    except HarnessDurableError as error:
        yield Check("world", "fail", str(error))
        return
    try:
        found = await world.describe()
        told = f"{found.durability}; news: {found.notification}; for {found.reach}"
        yield Check("world", "ok", f"{redact(found.url)}: {told}")
        if found.details:
            details = "; ".join(f"{name}: {what}" for name, what in found.details.items())
            yield Check(f"world {found.name}", "ok", details)
        for warning in found.warnings:
            yield Check("world", "warn", warning)
    finally:
        await world.aclose()


def _run_dir(settings: Settings) -> Check:
    try:
        check_run_dir(settings.run_dir)
    except BadSetting as error:
        return Check("run directory", "fail", str(error))
    return Check("run directory", "ok", str(settings.run_dir))


async def sandbox_rows(settings: Settings) -> AsyncIterator[Check]:
    """How firmly lives are held here, and what else the sandbox can say of itself."""
    name = f"sandbox {settings.sandbox}"
    try:
        sandbox = cast(Sandbox, registry.load("sandbox", settings.sandbox)(settings.run_dir))
        try:
            if isinstance(sandbox, ChecksItself):
                async for row in sandbox.findings(settings.sandbox_options):
                    yield Check(f"{settings.sandbox} {row.about}", row.state, row.sentence)
            if isinstance(sandbox, TellsIsolation):
                found = await sandbox.isolation()
                yield Check(name, "ok" if found.firm else "warn", f"{found.kind}: {found.sentence}")
        finally:
            await sandbox.aclose()
    except HarnessDurableError as error:
        yield Check(name, "fail", str(error))


def _provider(settings: Settings) -> Check:
    where = redact(settings.upstream_url)
    if settings.upstream_auth == "login":
        return Check(
            "provider",
            "warn",
            f"{where}: the harness's own login is used, so its credentials enter the sandbox; "
            "set a key and HARNESS_DURABLE_UPSTREAM_AUTH=key to keep them out",
        )
    if settings.upstream_key is None:
        return Check(
            "provider", "warn", f"{where}: no key; set HARNESS_DURABLE_UPSTREAM_KEY or ANTHROPIC_API_KEY"
        )
    return Check("provider", "ok", f"{where}: a key is set; it stays in the worker")


async def _harness(name: str, quick: bool) -> AsyncIterator[Check]:
    try:
        adapter: Adapter = registry.load("adapter", name)()
        found = await adapter.find()
        yield Check(name, "ok", f"{found.version} at {found.path}")
        if not quick:
            troubles = await adapter.check()
            for trouble in troubles:
                yield Check(f"{name} self-test", "fail", trouble)
            if not troubles:
                yield Check(f"{name} self-test", "ok", "killed and continued in the middle of a turn")
    except HarnessDurableError as error:
        yield Check(name, "fail", str(error))
