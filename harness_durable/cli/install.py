"""``harness-durable install``: fetch a tested version of a harness into the managed folder."""

from __future__ import annotations

import click

from harness_durable import registry
from harness_durable.cli.common import asynchronous, json_option, print_json, say


@click.command()
@click.argument("adapter")
@click.option("--version", help="a tested version [default: the newest tested one]")
@click.option("--all-versions", is_flag=True, help="every tested version, as the test suite needs them")
@json_option
@asynchronous
async def install(adapter: str, version: str | None, all_versions: bool, as_json: bool) -> None:
    """Fetch the harness of ADAPTER, with the user's own pip or npm. What is there already is left alone."""
    if version and all_versions:
        raise click.UsageError("--version names one version, --all-versions all of them; give one of the two")
    loaded = registry.load("adapter", adapter)()
    for wanted in loaded.versions if all_versions else (version,):
        found = await loaded.install(wanted, say)
        if as_json:
            print_json({"adapter": adapter, "version": found.version, "path": found.path})
        else:
            click.echo(f"{adapter} {found.version} {found.path}")
