"""Lock files of workers: dead at once when the process is, whatever stands in the file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from harness_durable import clock
from harness_durable.errors import LeaseLost, StorageUnavailable
from harness_durable.world import Owner
from harness_durable_worlds._liveness import HostLiveness


class HandClock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now_ms(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def owner() -> Owner:
    return Owner(str(uuid.uuid4()), "host", os.getpid())


def holder(folder: Path, worker: str, tail: str) -> subprocess.Popen[str]:
    """A process that registers a worker, says so, and then runs ``tail``."""
    code = f"""
        import os, sys, time
        from pathlib import Path
        from harness_durable_worlds._liveness import HostLiveness
        from harness_durable.world import Owner
        live = HostLiveness(Path({str(folder)!r}))
        live.register(Owner({worker!r}, "host", os.getpid()), 60.0)
        print("ready", flush=True)
        {tail}
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_a_registered_worker_is_alive_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    live, me = HostLiveness(tmp_path / "w"), owner()
    assert not live.alive(me.worker)
    live.register(me, 15.0)
    assert live.alive(me.worker)
    assert HostLiveness(tmp_path / "w").alive(me.worker)
    left = live.lease_left(me.worker)
    assert left is not None and 0 < left <= 15
    live.close()


def test_a_lease_that_ran_out_ends_life_and_a_renewal_brings_it_back(tmp_path: Path) -> None:
    """C080: until somebody else has claimed, its worker only renews it."""
    hand = HandClock()
    with clock.use(hand):
        live, me = HostLiveness(tmp_path), owner()
        live.register(me, 15.0)
        hand.at += 15.5
        assert not live.alive(me.worker)
        assert live.lease_left(me.worker) == pytest.approx(-0.5)
        live.renew(me)
        assert live.alive(me.worker)
        live.close()


def test_a_worker_that_leaves_is_dead_at_once(tmp_path: Path) -> None:
    live, me = HostLiveness(tmp_path), owner()
    live.register(me)
    live.unregister(me)
    live.unregister(me)
    assert live.lease_left(me.worker) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LeaseLost, match="register"):
        live.renew(me)


def test_a_killed_process_is_dead_at_once_although_its_lease_goes_on(tmp_path: Path) -> None:
    """C074: with no step by hand."""
    live, worker = HostLiveness(tmp_path), str(uuid.uuid4())
    child = holder(tmp_path, worker, "time.sleep(60)")
    assert live.alive(worker)
    end(child)
    assert not live.alive(worker)


def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    live, worker = HostLiveness(tmp_path), str(uuid.uuid4())
    # The grandchild speaks, so that what happens at a fork has happened in it.
    tail = "pid = os.fork(); pid or print(os.getpid(), flush=True); time.sleep(60)"
    child = holder(tmp_path, worker, tail)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert live.alive(worker)
    try:
        child.kill()
        child.wait()
        os.kill(grandchild, 0)
        assert not live.alive(worker)
    finally:
        os.kill(grandchild, 9)
        child.communicate()


@pytest.mark.parametrize("content", [b"", b'{"deadline":  99999999', b"\0" * 64, b"[]", b"\xff\xfe"])
def test_an_unreadable_lock_file_proves_nothing(tmp_path: Path, content: bytes) -> None:
    """C076: empty, cut and odd files are no proof, and are replaced."""
    live, me = HostLiveness(tmp_path), owner()
    live.register(me)
    path = tmp_path / f"{me.worker}.lock"
    path.write_bytes(content)
    assert live.lease_left(me.worker) is None
    live.register(me)
    assert live.alive(me.worker)
    live.close()


def test_sweep_removes_the_files_of_the_dead_and_no_other(tmp_path: Path) -> None:
    live, me = HostLiveness(tmp_path), owner()
    live.register(me)
    dead = str(uuid.uuid4())
    end(holder(tmp_path, dead, "time.sleep(60)"))
    (tmp_path / f"{uuid.uuid4()}.lock").write_bytes(b"half")
    assert live.sweep() == 2
    assert [path.name for path in tmp_path.iterdir()] == [f"{me.worker}.lock"]
    live.close()


def test_two_users_of_one_worker_share_its_lock(tmp_path: Path) -> None:
    first, second, me = HostLiveness(tmp_path), HostLiveness(tmp_path), owner()
    first.register(me)
    second.register(me)
    first.close()
    assert second.alive(me.worker)
    second.close()
    assert not second.alive(me.worker)


def test_a_worker_whose_folder_was_deleted_comes_back_with_its_renewal(tmp_path: Path) -> None:
    live, me = HostLiveness(tmp_path / "w"), owner()
    live.register(me)
    (tmp_path / "w" / f"{me.worker}.lock").unlink()
    (tmp_path / "w").rmdir()
    assert not live.alive(me.worker)
    live.renew(me)
    assert live.alive(me.worker)
    live.close()


def test_a_lock_held_from_another_machine_lives_while_its_number_moves(tmp_path: Path) -> None:
    hand = HandClock()
    with clock.use(hand):
        there, here, me = HostLiveness(tmp_path), HostLiveness(tmp_path), owner()
        there._boot = "another machine"  # pyright: ignore[reportPrivateUsage]
        there.register(me, 15.0)
        assert here.alive(me.worker)
        hand.at += 14
        assert here.alive(me.worker)
        there.renew(me)
        hand.at += 14
        assert here.alive(me.worker)
        hand.at += 15.5
        assert not here.alive(me.worker)
        there.close()


def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("")
    with pytest.raises(StorageUnavailable, match="writable"):
        HostLiveness(tmp_path / "w").register(owner())
