"""``harness-durable view``: the trace viewer, in a browser of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness_durable.cli.common import asynchronous, opened, say, visible, world_options

if TYPE_CHECKING:  # without the extra there is no such module to import
    from harness_durable.view.hall import Hall
    from harness_durable.view.network import Door


@click.command()
@click.argument("session", required=False, metavar="[SESSION | FILE]")
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", type=click.IntRange(0, 65535), help="port [default: 7337, or any that is free]")
@click.option("--allow-host", multiple=True, metavar="NAME", help="another name by which the page is opened")
@click.option("--token", is_flag=True, help="ask for a token on this machine, too: it has other users")
@click.option(
    "--open/--no-open", "open_it", default=None, help="open a browser [default: at a terminal with a screen]"
)
@world_options
@asynchronous
async def view(
    session: str | None,
    host: str,
    port: int | None,
    allow_host: tuple[str, ...],
    token: bool,
    open_it: bool | None,
    world: str | None,
    app: str | None,
) -> None:
    """Look at sessions in a browser: live, or again from the start.

    With SESSION the page opens there; with a FILE that `export` wrote it shows that, and needs no World. It
    only reads. On an address that others can reach, the printed link holds a token, and is needed to get in.
    """
    _needs_starlette()
    from harness_durable.view.hall import Hall
    from harness_durable.view.log import open_file
    from harness_durable.view.server import door

    who = door(host, allow_host, token=token)
    file = _file(session)
    if file is not None:
        log = await open_file(file)
        for damage in log.lost:
            say(f"warning: not in the file: {visible(damage)}")
        await _serve(Hall(log.world(), lost=log.lost), host, port, who, open_it, log.name)
        return
    async with opened(world, app) as store:
        if session is not None:
            await store.session(session)
        await _serve(Hall(store), host, port, who, open_it, session or "")


def _file(name: str | None) -> Path | None:
    """The file of that name, if there is one; a session may have the name of a folder."""
    return Path(name) if name is not None and Path(name).is_file() else None


def _needs_starlette() -> None:
    from importlib.util import find_spec

    from harness_durable.errors import BadSetting

    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise BadSetting(
            f"the viewer needs {' and '.join(missing)}, which are not installed; run "
            "`python -m pip install 'harness-durable[view]'`"
        )


def _has_screen() -> bool:
    """Without one, a browser of the terminal would take the place of this command."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


async def _serve(
    hall: Hall, host: str, port: int | None, who: Door, open_it: bool | None, first: str
) -> None:
    from harness_durable.view.server import listen, serve

    listening = listen(host, port)
    bound: int = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    link = f"http://{shown}:{bound}/" + (f"?token={who.token}" if who.token else "")

    def ready() -> None:
        click.echo(link)
        say("Ctrl-C ends it." + (" Whoever has the link can read every session." if who.token else ""))
        if open_it if open_it is not None else sys.stdout.isatty() and _has_screen():
            import webbrowser

            webbrowser.open(link)

    with listening:
        await serve(hall, listening, who, first=first, ready=ready)
