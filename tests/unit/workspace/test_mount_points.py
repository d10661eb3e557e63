"""A volume that a new machine mounts empty: it cannot be replaced, so its files are made inside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness_durable.errors import BadInput, DamagedWorkspace
from harness_durable.workspace import Limits, is_empty, mounting, restore
from tests.unit.workspace.kit import WHEN, Kept, Watched, inside, tree, write

FILES = {"a": "1", "d/b": "2", "d/e/c": "3", "z": "4", ".git/config": "[http]\n\textraheader = key\n"}


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Looks like a mount point; a real one needs rights that tests lack."""
    place = tmp_path / "volume"
    (place / "lost+found").mkdir(parents=True)
    place.chmod(0o751)
    real = os.path.ismount
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == place or real(path))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return place


async def saved(place: Path) -> Watched:
    write(place, FILES)
    (place / "empty").mkdir(mode=0o750)
    watched = Watched(place, Kept())
    await watched.step()
    return watched


def without_lost(place: Path) -> dict[bytes, tuple[object, ...]]:
    return {path: what for path, what in tree(place).items() if path != b"lost+found"}


async def test_an_empty_mount_point_is_filled_in_place(tmp_path: Path, volume: Path) -> None:
    watched = await saved(tmp_path / "w")
    assert is_empty(volume)
    done = await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)
    assert (done.files, done.redacted) == (5, (".git/config",))
    assert (mode(volume), is_empty(volume)) == (0o751, False)
    (volume / ".git/config").write_text(FILES[".git/config"])
    assert without_lost(volume) == tree(tmp_path / "w")
    assert inside(tmp_path) == ["volume", "w"]
    with pytest.raises(BadInput, match="not empty"):
        await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)


def mode(place: Path) -> int:
    return place.stat().st_mode & 0o777


@pytest.mark.parametrize("at", range(1, 9))
async def test_a_restore_into_it_that_was_cut_off_is_gone_on_with(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    watched = await saved(tmp_path / "w")
    names = [(Path, "rename"), (Path, "rmdir"), (os, "mkdir")]
    left = [at]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def act(*words: object, **named: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(*words, **named)

        return act

    with monkeypatch.context() as patch:
        for owner, name in names:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt):
            await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)
    assert is_empty(volume), "what is not whole must not be taken for the files"
    other = Watched(volume, Kept())
    assert not {mounting.FILLING, mounting.READY} & {
        c.path.split("/")[0] for c in (await other.scan()).changes
    }
    done = await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)
    assert (done.files, done.redacted) == (5, (".git/config",))
    (volume / ".git/config").write_text(FILES[".git/config"])
    assert without_lost(volume) == tree(tmp_path / "w")


async def test_damage_leaves_it_as_empty_as_it_was(tmp_path: Path, volume: Path) -> None:
    watched = await saved(tmp_path / "w")
    lost = next(name for name in watched.kept.blobs if watched.kept.raw(name) == b"2")
    stored = watched.kept.blobs.pop(lost)
    with pytest.raises(DamagedWorkspace) as caught:
        await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)
    assert caught.value.damaged == (("d/b", lost),) and caught.value.partial == volume / mounting.FILLING
    assert is_empty(volume)
    watched.kept.blobs[lost] = stored
    await restore(watched.root, volume, watched.kept.read, at_ms=WHEN)
    assert (volume / "d/b").read_text() == "2"


async def test_a_folder_that_is_no_mount_point_is_not_empty_with_such_names(tmp_path: Path) -> None:
    write(tmp_path, {"lost+found/x": "1", ".hd-restore/x": "1"})
    assert not is_empty(tmp_path)
    watched = Watched(tmp_path, Kept(), Limits())
    assert [change.path for change in (await watched.step()).changes] == ["lost+found/x"]


def test_a_bind_mount_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    real = Path.read_bytes
    line = b"36 35 8:1 /x " + os.fsencode(place).replace(b" ", b"\\040") + b" rw - ext4 /dev/x rw\n"

    def read(path: Path) -> bytes:
        return line if path.name == "mountinfo" else real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    assert mounting.is_mount(place) and not mounting.is_mount(tmp_path)
