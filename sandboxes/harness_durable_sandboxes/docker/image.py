"""Images: is one here, and how it gets here. Ours is built on this machine, others are pulled."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from importlib.resources import files

from anyio import from_thread
from anyio.lowlevel import current_token

from harness_durable.errors import BadSetting, SandboxUnavailable

from . import life
from .engine import Api, Engine, Json, Refused
from .options import IMAGE

Progress = Callable[[str], None]


async def check(engine: Engine, image: str) -> Json:
    """What the engine knows of an image. Raises ``BadSetting`` if it is not here, ``SandboxUnavailable``."""
    try:
        return await engine.call(lambda api: api.inspect_image(image))
    except Refused as refused:
        if refused.status == 404:
            raise life.no_image(image) from refused
        raise


async def install(engine: Engine, image: str, progress: Progress, **how: object) -> str:
    """Build or pull what is not here; what is there then. ``how`` is passed on to a build. Raises
    ``BadSetting`` or ``SandboxUnavailable``."""
    try:
        found = await check(engine, image)
    except BadSetting:
        progress(f"{'building' if image == IMAGE else 'pulling'} {image}")
        token = current_token()

        def tell(line: str) -> None:
            from_thread.run_sync(progress, line, token=token)

        await engine.call(lambda api: _fetch(api, image, tell, how))
        found = await check(engine, image)
    return f"image {image}, {int(found['Size']) / 1e6:.0f} MB"


def _fetch(api: Api, image: str, progress: Progress, how: Json) -> None:
    """In a thread."""
    if image == IMAGE:
        recipe = io.BytesIO(files(__package__ or "").joinpath("Dockerfile").read_bytes())
        steps = api.build(fileobj=recipe, tag=image, rm=True, forcerm=True, decode=True, **how)
    else:
        name, _, tag = image.rpartition(":")
        whole = "@" in image or "/" in tag or not name
        steps = api.pull(image if whole else name, tag=None if whole else tag, stream=True, decode=True)
    _follow(image, steps, progress)


def _follow(image: str, steps: Iterable[Json], progress: Progress) -> None:
    """Tell each step once, not each of its percents. Raises ``SandboxUnavailable``."""
    told: set[str] = set()
    failed = ""
    for step in steps:  # to the end, also of a failure: else its connection stays open
        failed = str(step.get("error", failed)).strip()
        line = str(step.get("stream") or step.get("status") or "").strip()
        line = f"{step['id']}: {line}" if step.get("id") and line else line
        if line and line not in told:
            told.add(line)
            progress(line)
    if failed:
        raise SandboxUnavailable(
            f"{image} could not be made: {failed}; see what was said before, then try again"
        )
