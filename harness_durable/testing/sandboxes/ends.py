"""Checks that nothing of a life is left once it has to be over."""

from __future__ import annotations

from pathlib import Path

from harness_durable.errors import KeeperGone, StaleEpoch
from harness_durable.sandbox import LifeRef, Link
from harness_durable.testing.sandboxes.bench import Bench, Watch, broken, expect

_FAMILY = (
    'exec 9>"$1"; echo x >&9; setsid sh -c "echo y >&9; sleep 1000 & wait" & '
    "(setsid sh -c 'echo z >&9; exec sleep 1000' &) ; sleep 1000"
)


async def _family(b: Bench, ttl: float = 600.0) -> tuple[LifeRef, Link, Watch]:
    """A harness with a child and an orphan, both in sessions of their own."""
    watch = b.watch()
    ref, link = await b.start(b.spec("sh", "-c", _FAMILY, "sh", watch.path, ttl=ttl))
    await b.held_by(watch, b"xyz")
    return ref, link, watch


async def shutdown_leaves_nothing(b: Bench) -> str:
    ref, link, watch = await _family(b)
    await link.shutdown()
    expect(not watch.held(), "something lives on after shutdown()")
    expect(not await b.sandbox.alive(ref), "alive() is true after shutdown()")
    return "child, orphan and keeper were gone on return"


async def reap_leaves_nothing(b: Bench) -> str:
    ref, _, watch = await _family(b)
    await b.sandbox.reap(ref)
    expect(not watch.held(), "something lives on after reap()")
    expect(not await b.sandbox.alive(ref), "alive() is true after reap()")
    expect(not _exists(ref.run_dir), f"{ref.run_dir} is still there after reap()")
    await b.sandbox.reap(ref)
    return "all gone on return, directory too; reaping twice is no error"


async def reap_spares_other_lives(b: Bench) -> str:
    ref, _, watch = await _family(b)
    other, _, spared = await _family(b)
    await b.sandbox.reap(ref)
    expect(not watch.held(), "something lives on after reap()")
    expect(spared.held() and await b.sandbox.alive(other), "another life was killed")
    return "the other life goes on"


async def an_older_epoch_ends_nothing(b: Bench) -> str:
    ref, _ = await b.start(b.spec("cat"), 5)
    newer = await b.attach(ref, 7)
    try:
        await b.sandbox.reap(ref, 6)
    except StaleEpoch as error:
        expect(error.current == 7, f"the keeper said epoch {error.current}")
    else:
        broken("a worker of epoch 6 ended the life that epoch 7 holds")
    expect(await b.sandbox.alive(ref), "the life ended all the same")
    await newer.write(b"still here\n")
    await newer.aclose()
    expect(await b.sandbox.reap(ref, 7), "its own epoch could not end it")
    expect(not await b.sandbox.alive(ref), "alive() is true after reap()")
    return "reap of an older epoch is refused, also once nobody is attached; an equal one ends it"


async def a_killed_keeper_takes_all_along(b: Bench) -> str:
    if b.place.kill_keeper is None:
        return "not tried: this place has no way to kill a keeper"
    ref, link, watch = await _family(b)
    b.place.kill_keeper(ref)
    await b.gone(watch)
    try:
        await link.write(b"anybody?\n")
    except KeeperGone:
        pass
    else:
        broken("write() after the keeper's death did not raise KeeperGone")
    expect(not await b.sandbox.alive(ref), "alive() is true after the keeper's death")
    return "child and orphan died with it, the link says KeeperGone"


async def an_orphaned_life_ends(b: Bench) -> str:
    ref, link, watch = await _family(b, ttl=0.2)
    await link.aclose()
    await b.gone(watch)

    async def left() -> bool:
        return not await b.sandbox.alive(ref)

    await b.until("the keeper left", left)
    return "all gone soon after its ttl"


def _exists(path: str) -> bool:
    return Path(path).exists()
