"""``harness-durable install``: fetch a tested version of a harness into the managed folder, and what a
sandbox needs."""

from __future__ import annotations

from typing import cast

import click

from harness_durable import registry
from harness_durable.cli.common import asynchronous, json_option, pairs, print_json, say


@click.command()
@click.argument("adapter", required=False)
@click.option("--version", help="a tested version [default: the newest tested one]")
@click.option("--all-versions", is_flag=True, help="every tested version, as the test suite needs them")
@click.option("--sandbox", help="also what this sandbox needs, such as the image of docker")
@click.option(
    "--sandbox-option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    help="an option of the sandbox, such as image=NAME; may be repeated",
)
@json_option
@asynchronous
async def install(
    adapter: str | None,
    version: str | None,
    all_versions: bool,
    sandbox: str | None,
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Fetch the harness of ADAPTER, with the user's own pip or npm. What is there already is left alone."""
    if version and all_versions:
        raise click.UsageError("--version names one version, --all-versions all of them; give one of the two")
    if adapter is None and sandbox is None:
        raise click.UsageError("name an ADAPTER, such as claude-code, or a --sandbox")
    if adapter is not None:
        await _harness(adapter, version, all_versions, as_json)
    if sandbox is not None:
        await _sandbox(sandbox, pairs(options), as_json)


async def _harness(adapter: str, version: str | None, all_versions: bool, as_json: bool) -> None:
    loaded = registry.load("adapter", adapter)()
    for wanted in loaded.versions if all_versions else (version,):
        found = await loaded.install(wanted, say)
        if as_json:
            print_json({"adapter": adapter, "version": found.version, "path": found.path})
        else:
            click.echo(f"{adapter} {found.version} {found.path}")


async def _sandbox(name: str, options: dict[str, str], as_json: bool) -> None:
    """One that needs nothing has everything."""
    from harness_durable.sandbox import Installs, Sandbox
    from harness_durable.settings import resolve

    settings = resolve().settings
    sandbox = cast(Sandbox, registry.load("sandbox", name)(settings.run_dir))
    found = "nothing is needed"
    if isinstance(sandbox, Installs):
        found = await sandbox.install({**settings.sandbox_options, **options}, say)
    if as_json:
        print_json({"sandbox": name, "found": found})
    else:
        click.echo(f"{name} {found}")
