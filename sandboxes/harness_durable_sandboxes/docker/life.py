"""Starting a life in a container, and what it means when that fails."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from anyio.to_thread import run_sync

from harness_durable import clock
from harness_durable.errors import BadSetting, HarnessDurableError, SandboxUnavailable
from harness_durable.sandbox import LifeSpec

from .. import layout
from . import container
from .engine import Engine, Json, Refused
from .options import IMAGE, Options

_READY_SECONDS, _NOTICE_SECONDS = 60.0, 10.0
_LOOK_SECONDS, _NOTICE_EVERY, _ASK_SECONDS = 0.01, 0.05, 0.25


async def begin(engine: Engine, life: Path, spec: LifeSpec, options: Options, root: str) -> None:
    """Returns when the harness runs under its keeper, in a container named for the life.

    Raises ``StartedBefore``, ``HarnessMissing``, ``BadInput``, ``BadSetting``, ``SandboxUnavailable`` or
    ``OSError``; what was made by then is left to the caller to reap.
    """
    user, name = container.user_of(spec.workspace, options), container.name_of(root, spec.life)
    wanted = container.config(life, spec, options, user, container.labels(root, spec))
    places = {"@PORT@": str(container.PORT), "@HOME@": str(layout.home(life))}
    env = {**container.environment(options), **layout.environment(spec, places)}
    await layout.lay_out(life, spec, places, env=env, port=container.PORT)
    await run_sync(container.make_covers, life, wanted)
    for folder in (layout.home(life), life / "keeper"):
        await run_sync(hand_over, folder, user)
    try:
        await engine.call(lambda api: api.create_container_from_config(wanted, name))
        await engine.call(lambda api: api.start(name))
    except Refused as refused:
        raise _meant(refused, options) from refused
    if not await _ready(engine, life / "keeper", name):
        program = layout.filled(spec.argv[0], places)
        raise layout.failure(life / "keeper", program, layout.filled(spec.cwd, places))


def hand_over(folder: Path, user: tuple[int, int]) -> None:
    """What we made there belongs to the user from now on. Only root can. By descriptors, not by paths: a life
    of another session may be at work in the same folder, and put a link in a path's way."""
    if os.geteuid() != 0:
        return
    for _, folders, files, here in os.fwalk(folder, follow_symlinks=False):
        for name in (".", *folders, *files):
            with suppress(FileNotFoundError):
                if os.stat(name, dir_fd=here, follow_symlinks=False).st_uid == 0:
                    os.chown(name, *user, dir_fd=here, follow_symlinks=False)


async def _ready(engine: Engine, run: Path, name: str) -> bool:
    """False if the keeper says that it could not start the harness. Raises ``SandboxUnavailable`` if it does
    not say anything."""
    began = asked = clock.monotonic()
    while True:
        for file, ready in (("keeper.json", True), ("failed.json", False)):
            if (run / file).exists():
                return ready
        now = clock.monotonic()
        if now - asked > _ASK_SECONDS:
            asked = now
            state = await state_of(engine, name)
            if state is None or not state["Running"]:
                if not any((run / file).exists() for file in ("keeper.json", "failed.json")):
                    raise SandboxUnavailable(f"the keeper did not start: {await _last_words(engine, name)}")
            elif now - began > _READY_SECONDS:
                raise SandboxUnavailable(
                    f"the keeper in {name} was not ready after {_READY_SECONDS:.0f} s: does the engine see "
                    "the same files as this worker? See docker logs, then try again"
                )
        await clock.sleep(_LOOK_SECONDS)


async def _last_words(engine: Engine, name: str) -> str:
    try:
        said = await engine.call(lambda api: api.logs(name, tail=20))
    except SandboxUnavailable as trouble:
        return str(trouble)
    lines = said.decode(errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'no reason given'}; does the image have Python 3.9 or newer?"


def _meant(refused: Refused, options: Options) -> HarnessDurableError:
    words = refused.words
    if refused.status == 404 and "no such image" in words.lower():
        return no_image(options.image)
    if "python3" in words and "executable file not found" in words:
        return BadSetting(
            f"the image {options.image} has no python3, which the keeper needs; use an image that has it, "
            "with bash and git, or build one on top"
        )
    if "bind source path does not exist" in words:
        return BadSetting(
            f"the Docker engine does not see the files of this worker ({words}): it is on another machine, "
            "or the worker is in a container; run the worker beside the engine"
        )
    return refused


class ImageMissing(BadSetting):
    """The image of a session is not on this machine."""

    why = "image_missing"


def no_image(image: str) -> ImageMissing:
    """What to do about an image that is not here."""
    option = "" if image == IMAGE else f" --sandbox-option image={image}"
    return ImageMissing(
        f"the image {image} is not on this machine; run `harness-durable install --sandbox docker{option}`"
    )


async def state_of(engine: Engine, name: str) -> Json | None:
    """The engine's ``State`` of a container; None if there is none of that name. Raises
    ``SandboxUnavailable``."""
    try:
        found = await engine.call(lambda api: api.inspect_container(name))
    except Refused as refused:
        if refused.status == 404:
            return None
        raise
    state: Json = found["State"]
    return state


async def settled(engine: Engine, name: str) -> Json | None:
    """The same of one whose first process has ended, which the engine takes a moment to notice. Raises
    ``SandboxUnavailable``."""
    give_up = clock.monotonic() + _NOTICE_SECONDS
    while True:
        state = await state_of(engine, name)
        if state is None or not state["Running"] or clock.monotonic() > give_up:
            return state
        await clock.sleep(_NOTICE_EVERY)


def _passes(refused: Refused) -> bool:
    """Somebody removes it already, or it ended by itself just when the engine was about to kill it."""
    return refused.status == 409 or "is not running" in refused.words


async def remove(engine: Engine, name: str) -> None:
    """Kill it, and wait until nothing of it is left. Raises ``SandboxUnavailable``."""
    give_up = clock.monotonic() + _READY_SECONDS
    while True:
        try:
            await engine.call(lambda api: api.remove_container(name, v=True, force=True))
        except Refused as refused:
            if refused.status == 404:
                return
            if not _passes(refused) or clock.monotonic() > give_up:
                raise
        else:
            return
        await clock.sleep(_ASK_SECONDS)
