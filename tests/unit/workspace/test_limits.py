"""Case 13: what is over a limit is refused or said, and no part ever passes for the whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harness_durable.errors import BadSetting, StorageUnavailable, WorkspaceMissing
from harness_durable.workspace import Limits, refuse, scanner, sink
from tests.unit.workspace.kit import Kept, Watched, write

KIB = 1 << 10


async def test_a_file_over_the_limit_is_left_out_and_said_without_being_opened(tmp_path: Path) -> None:
    write(tmp_path / "w", {"small": "1", "large": bytes(11 * KIB)})
    watched = Watched(tmp_path / "w", Kept(), Limits(max_file=10 * KIB))
    scanned = await watched.step()
    assert [(left.path, left.reason) for left in scanned.left_out or ()] == [("large", "too large")]
    assert scanned.opened == 1
    write(tmp_path / "w", {"large": "less", "small": bytes(12 * KIB)})
    scanned = await watched.step()
    assert [(change.op, change.path) for change in scanned.changes] == [
        ("added", "large"),
        ("removed", "small"),
    ]


@pytest.mark.parametrize(
    ("word", "limits"), [("max_total", Limits(max_total=50 * KIB)), ("max_files", Limits(max_files=50))]
)
async def test_a_tree_over_the_limit_gets_no_snapshot_and_stores_nothing(
    tmp_path: Path, word: str, limits: Limits
) -> None:
    write(tmp_path / "w", {f"d{n % 9}/{n}": os.urandom(KIB) for n in range(60)})
    watched = Watched(tmp_path / "w", kept := Kept(), limits)
    scanned = await watched.scan()
    assert (scanned.skipped, scanned.root, scanned.blobs) == (word, "", {})
    assert f"WORKSPACE_{word.upper()}" in scanned.why and "--files kept" in scanned.why
    assert kept.blobs == {} and kept.asked == 0
    for number in range(20):
        (tmp_path / "w" / f"d{number % 9}" / str(number)).unlink()
    assert (await watched.step()).counts.added == 40
    write(tmp_path / "w", {f"new/{n}": os.urandom(KIB) for n in range(60)})
    over, root = await watched.scan(), watched.root
    assert (over.skipped, over.root) == (word, root)
    watched.tracker.landed(over)  # nothing landed
    for number in range(60):
        (tmp_path / "w/new" / str(number)).unlink()
    (tmp_path / "w/new").rmdir()
    assert (await watched.step()).root == root


async def test_a_step_with_too_much_new_content_is_skipped_each_time_until_there_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "BATCH", 8 * KIB)
    monkeypatch.setattr(sink, "WITH_EVENT", 16 * KIB)
    write(tmp_path / "w", {"first": os.urandom(200 * KIB)})
    watched = Watched(tmp_path / "w", kept := Kept(), Limits(max_step=100 * KIB))
    await watched.step()  # the first one is bound by max_total
    kept.puts.clear()
    write(tmp_path / "w", {f"n{n}": os.urandom(10 * KIB) for n in range(15)})
    for _ in range(3):
        scanned = await watched.scan()
        assert scanned.skipped == "max_step" and "WORKSPACE_MAX_STEP" in scanned.why
    for number in range(8):
        (tmp_path / "w" / f"n{number}").unlink()
    scanned = await watched.step()
    assert scanned.counts.added == 7
    assert len(kept.puts) > 3 and max(kept.puts) <= 20 * KIB


async def test_a_snapshot_that_takes_too_long_is_given_up_and_said(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})

    class Slow(Kept):
        async def missing(self, names: object) -> list[str]:
            await anyio.sleep_forever()
            raise AssertionError

    scanned = await Watched(tmp_path / "w", Slow(), Limits(timeout=0.05)).scan()
    assert (scanned.skipped, scanned.root) == ("timeout", "") and "WORKSPACE_TIMEOUT" in scanned.why


async def test_a_walk_that_hangs_takes_one_thread_however_often_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls whose outcomes are to be written do not each wait for a file system that does not answer."""
    write(tmp_path / "w", {"a": "1"})
    watched = Watched(tmp_path / "w", Kept(), Limits(timeout=0.05))
    await watched.step()
    answers, begun = threading.Event(), list[int]()
    real = scanner.Scan.run

    def hangs(scan: scanner.Scan) -> object:
        begun.append(1)
        answers.wait(20)
        return real(scan)

    monkeypatch.setattr(scanner.Scan, "run", hangs)
    write(tmp_path / "w", {"a": "2"})
    looks = [await watched.scan() for _ in range(3)]
    assert [each.skipped for each in looks] == ["timeout"] * 3 and len(begun) == 1
    assert "WORKSPACE_TIMEOUT" in looks[0].why and "file system" in looks[1].why
    answers.set()
    with anyio.fail_after(10):
        while (scanned := await watched.scan()).skipped:
            await anyio.lowlevel.checkpoint()
    assert watched.land(scanned).counts.modified == 1


async def test_a_scan_can_be_cancelled_and_the_next_one_is_whole(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    asked, gate = anyio.Event(), anyio.Event()

    class Held(Kept):
        async def missing(self, names: object) -> list[str]:
            asked.set()
            await gate.wait()
            return await super().missing(names)  # type: ignore[arg-type]  # as it came

    watched = Watched(tmp_path / "w", Held())
    async with anyio.create_task_group() as group:
        group.start_soon(watched.scan)
        await asked.wait()
        group.cancel_scope.cancel()
    gate.set()
    assert (await watched.step()).counts.added == 1


async def test_a_workspace_that_is_gone_or_became_a_link_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})
    watched = Watched(tmp_path / "w", Kept())
    await watched.step()
    (tmp_path / "w").rename(tmp_path / "x")
    with pytest.raises(WorkspaceMissing, match="cannot be read"):
        await watched.scan()
    (tmp_path / "w").symlink_to("x")
    with pytest.raises(WorkspaceMissing):
        await watched.scan()


@pytest.mark.parametrize("errno", [24, 12])
async def test_want_of_descriptors_or_memory_is_no_smaller_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno: int
) -> None:
    write(tmp_path / "w", {"d/a": "1", "d/b": "1"})
    watched = Watched(tmp_path / "w", Kept())
    await watched.step()
    write(tmp_path / "w", {"d/b": "2"})
    real = os.open

    def failing(path: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path in (b"b", b"d"):
            raise OSError(errno, os.strerror(errno))
        return real(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        scanned = await watched.scan()
    assert (scanned.skipped, scanned.root) == ("error", watched.root)
    assert [change.path for change in (await watched.step()).changes] == ["d/b"]


async def test_what_may_not_be_read_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "w", {"a": "1", "closed": "1", "folder/x": "1"})
    real = os.open

    def denied(path: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path in (b"closed", b"folder"):
            raise PermissionError(13, "denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", denied)
    scanned = await Watched(tmp_path / "w", Kept()).step()
    assert [change.path for change in scanned.changes] == ["a"]
    assert {left.path: left.reason for left in scanned.left_out or ()} == {
        "closed": "unreadable",
        "folder/": "unreadable",
    }


async def test_another_file_system_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "w", {"a": "1", "mounted/x": "1"})
    inode = (tmp_path / "w/mounted").stat().st_ino
    real = scanner._listed  # pyright: ignore[reportPrivateUsage]  # a mount needs rights that tests lack

    def listed(fd: int) -> dict[bytes, os.stat_result]:
        found = real(fd)
        for name, status in found.items():
            if status.st_ino == inode:
                found[name] = os.stat_result((*status[:2], status.st_dev + 1, *status[3:]))
        return found

    monkeypatch.setattr(scanner, "_listed", listed)
    scanned = await Watched(tmp_path / "w", Kept()).step()
    assert [(left.path, left.reason) for left in scanned.left_out or ()] == [
        ("mounted/", "another file system")
    ]


def test_the_root_and_the_home_folder_are_never_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "me"
    (home / "project").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", os.fspath(home))
    for place in (Path("/"), home, tmp_path / "home", tmp_path / "link", home / "project" / ".."):
        with pytest.raises(BadSetting, match="cannot be a workspace"):
            refuse(place)
    refuse(home / "project")
    refuse(tmp_path / "home" / "other")


async def test_a_world_that_is_down_is_no_skipped_snapshot(tmp_path: Path) -> None:
    write(tmp_path / "w", {"a": "1"})

    class Down(Kept):
        async def missing(self, names: object) -> list[str]:
            raise StorageUnavailable("the disk is full; make room")

    with pytest.raises(StorageUnavailable):
        await Watched(tmp_path / "w", Down()).scan()
