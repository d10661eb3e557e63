"""Opening a file World where it cannot work, or must not: the error says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.errors import BadInput, BadSetting, LogTooNew, StorageUnavailable
from harness_durable.world import MAX_RECORD
from harness_durable.worlds import open_world
from harness_durable_worlds import _file_system
from tests.worlds.file_support import PARKED, note, opened

MOUNTS = """\
24 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 24 0:30 / /mnt/share rw,relatime shared:1 - nfs4 server:/x rw
31 24 0:31 / /mnt/my\\040disk rw - cifs //server/x rw
32 24 0:32 / /run rw,nosuid - tmpfs tmpfs rw
33 30 254:1 / /mnt/share/local rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/x", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/my disk/w", "cifs"),
        ("/mnt/share/local/w", "xfs"),
        ("/run/w", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert _file_system.kind_of(Path(folder), MOUNTS) == kind


def test_the_file_system_of_this_machine_is_known(tmp_path: Path) -> None:
    assert _file_system.kind_of(tmp_path) != "unknown"


def test_a_network_file_system_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_file_system.ALLOW, raising=False)
    with pytest.raises(BadSetting, match="HARNESS_DURABLE_ALLOW_NETWORK_FS=1"):
        _file_system.check(Path("/mnt/share"), "nfs4")
    monkeypatch.setenv(_file_system.ALLOW, "1")
    assert "only one host" in _file_system.check(Path("/mnt/share"), "nfs4")[0]
    assert "loses every session" in _file_system.check(Path("/run"), "tmpfs")[0]
    assert _file_system.check(Path("/"), "ext4") == ()


async def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("")
    with pytest.raises(StorageUnavailable, match="cannot use"):
        await open_world(f"file:{tmp_path}/w", "a")


async def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    (tmp_path / "VERSION").write_text("7\n")
    with pytest.raises(LogTooNew, match="format 7"):
        await open_world(f"file:{tmp_path}", "a")
    assert (tmp_path / "VERSION").read_text() == "7\n"


async def test_a_torn_version_file_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("")
    async with opened(tmp_path):
        assert (tmp_path / "VERSION").read_text() == "1\n"


@pytest.mark.parametrize("app", ["", "../x", "a/b", ".hidden", "VERSION", "a" * 200])
async def test_an_app_that_cannot_be_a_folder_is_refused(tmp_path: Path, app: str) -> None:
    with pytest.raises(BadSetting):
        await open_world(f"file:{tmp_path}/w", app)
    assert not (tmp_path / "w").exists()


async def test_a_url_without_a_folder_is_refused() -> None:
    with pytest.raises(BadSetting, match="file:DIR"):
        await open_world("file:", "a")


@pytest.mark.parametrize("session", ["../../etc", "", ".hidden", "a/b", "a" * 129, "a\0b"])
async def test_no_session_id_leaves_the_folder(tmp_path: Path, session: str) -> None:
    async with opened(tmp_path) as world:
        with pytest.raises(BadInput):
            await world.create(session, [note()], PARKED)
        with pytest.raises(BadInput):
            await world.read(session)
        with pytest.raises(BadInput):
            await world.blob(session, "0" * 64)


async def test_what_is_too_large_or_misnamed_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create("s", [note()], PARKED)
        with pytest.raises(BadInput, match="into a blob"):
            await world.append("s", expected_head=1, epoch=0, records=[note(b"x" * (MAX_RECORD + 1))])
        with pytest.raises(BadInput, match="sha256"):
            await world.append("s", expected_head=1, epoch=0, records=[note()], blobs={"../../x": b""})
        assert (await world.session("s")).head == 1


async def test_relative_and_slashed_urls_name_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("file:w", "file:./w", f"file:{tmp_path}/w", f"file://{tmp_path}/w"):
        world = await open_world(url, "a")
        await world.create("s", [note()], PARKED)
        assert [row.session for row in await world.sessions()] == ["s"]
        await world.aclose()
