"""Starting the keeper of a life as a process of this host, detached from this process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import anyio

from harness_durable.sandbox import LifeSpec

from . import layout, processes

Isolation = Literal["auto", "guard"]

KEEPER = Path(__file__).parent / "keeper"


async def launch(life: Path, spec: LifeSpec, isolation: Isolation = "auto") -> None:
    """Returns when the harness runs under its keeper.

    Raises ``StartedBefore``, ``HarnessMissing``, ``BadInput`` or ``OSError``; what was made by then is left
    to the caller to reap.
    """
    run = life / "keeper"
    marks = processes.marks(spec.life, run)
    with socket.socket() as relay:
        relay.bind(("127.0.0.1", 0))
        relay.listen(128)
        places = {"@PORT@": str(relay.getsockname()[1]), "@HOME@": str(layout.home(life))}
        env = {**layout.environment(spec, places), **marks}
        await layout.lay_out(life, spec, places, env=env, relay_fd=relay.fileno(), isolation=isolation)
        code = await _run_until_ready(run, marks, relay.fileno())
    if code != 0:
        raise layout.failure(run, layout.filled(spec.argv[0], places), layout.filled(spec.cwd, places))


async def _run_until_ready(run: Path, marks: Mapping[str, str], relay: int) -> int:
    """The process that we start leaves as soon as the keeper is ready (0), or has failed."""
    with (run / "keeper.err").open("wb") as err:
        process = await anyio.open_process(
            [sys.executable or "python3", "-I", "-S", str(KEEPER), str(run)],
            stdin=subprocess.DEVNULL,
            stdout=err,
            stderr=err,
            cwd="/",
            env=marks,
            start_new_session=True,
            pass_fds=(relay,),
        )
    try:
        return await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
