"""Opening a SQLite World: what is set up, what is refused, and with which sentence."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import apsw
import pytest

from harness_durable.errors import BadSetting, LogTooNew, StorageUnavailable
from harness_durable.worlds import open_world
from harness_durable_worlds import _sqlite_file as file
from harness_durable_worlds._sqlite_db import Db, open_db
from harness_durable_worlds._sqlite_sql import MIGRATIONS, SCHEMA
from tests.worlds.sqlite_support import APP, PARKED, begin, end, hear, ids, integrity, record, start

READWRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


async def make(path: Path) -> None:
    world = await open_world(f"sqlite:{path}", APP)
    await begin(world)
    await world.aclose()


def with_database(path: Path, statements: str) -> None:
    db = open_db(path, READWRITE)
    db.execute(statements).fetchall()
    db.close()


async def test_commits_are_synced_and_only_the_writer_checkpoints(tmp_path: Path) -> None:
    await make(tmp_path / "s.db")
    db = file.connect(tmp_path / "s.db", write=True)
    try:
        found = {name: db.pragma(name) for name in ("journal_mode", "synchronous", "wal_autocheckpoint")}
        assert found == {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}
        assert db.pragma("page_size") == 4096
        assert db.pragma("auto_vacuum") == 2
        assert db.pragma("user_version") == SCHEMA
    finally:
        db.close()


async def test_the_writing_connection_of_an_open_world_is_the_one_that_was_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[bool, object]] = []
    connect = file.connect

    def watched(path: Path, *, write: bool) -> Db:
        db = connect(path, write=write)
        opened.append((write, db.pragma("synchronous" if write else "query_only")))
        return db

    monkeypatch.setattr(file, "connect", watched)
    await make(tmp_path / "s.db")
    assert opened.count((True, 2)) == 1
    assert {each for each in opened if not each[0]} == {(False, 1)}


async def test_on_macos_a_sync_goes_through_the_drives_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    await make(tmp_path / "s.db")
    db = file.connect(tmp_path / "s.db", write=True)
    assert (db.pragma("fullfsync"), db.pragma("checkpoint_fullfsync")) == (1, 1)
    db.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "in memory"),
        ("sqlite:file:x?mode=memory", "in memory"),
        ("sqlite://x.db", "sqlite:x.db"),
        ("sqlite:x.db?timeout=3", "names no file"),
        ("sqlite:x/", "names no file"),
        ("sqlite:~nobody-of-that-name/x.db", "without its ~"),
        ("sqlite:.", "names a folder"),
    ],
)
async def test_an_url_that_names_no_file_is_refused_with_what_would_work(url: str, says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        await open_world(url, APP)


async def test_paths_may_be_relative_absolute_or_begin_with_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for url in (
        "sqlite:a.db",
        f"sqlite:{tmp_path}/deep/er/b.db",
        "sqlite:~/c.db",
        f"sqlite://{tmp_path}/d.db",
    ):
        world = await open_world(url, APP)
        await world.aclose()
    names = ("a.db", "deep/er/b.db", "home/c.db", "d.db")
    assert all((tmp_path / name).stat().st_size for name in names)


async def test_the_file_is_for_its_user_only(tmp_path: Path) -> None:
    await make(tmp_path / "s.db")
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("version", "bad"), [("3.40.1", True), ("3.51.2", True), ("3.51.3", False), ("3.6.23", False)]
)
async def test_a_sqlite_that_can_damage_its_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, bad: bool
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    assert file.affected(version) is bad
    if bad:
        with pytest.raises(BadSetting, match=rf"SQLite {version}.*pip install"):
            await open_world(f"sqlite:{tmp_path}/s.db", APP)
        assert not (tmp_path / "s.db").exists()
    else:
        await make(tmp_path / "s.db")


async def test_a_folder_that_cannot_be_written_is_said_with_the_next_step() -> None:
    with pytest.raises(
        StorageUnavailable,
        match=r"cannot use sqlite:/proc/nowhere/s\.db as a World.*make its folder writable",
    ):
        await open_world("sqlite:/proc/nowhere/s.db", APP)


async def test_a_file_that_cannot_be_opened_is_said_with_the_next_step(tmp_path: Path) -> None:
    await make(tmp_path / "s.db")
    (tmp_path / "s.db-wal").mkdir()
    with pytest.raises(StorageUnavailable, match=r"s\.db"):
        await open_world(f"sqlite:{tmp_path}/s.db", APP)


async def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database, and longer than the header of one\n" * 40)
    before = other.read_bytes()
    with pytest.raises(BadSetting, match=r"notes\.txt is not a SQLite database"):
        await open_world(f"sqlite:{other}", APP)
    assert other.read_bytes() == before


async def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with_database(tmp_path / "s.db", "create table mine (x)")
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(BadSetting, match="another program"):
        await open_world(f"sqlite:{tmp_path}/s.db", APP)
    assert (tmp_path / "s.db").read_bytes() == before


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    await make(tmp_path / "s.db")
    with_database(tmp_path / "s.db", f"pragma user_version = {SCHEMA + 1}")
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(LogTooNew) as caught:
        await open_world(f"sqlite:{tmp_path}/s.db", APP)
    assert (caught.value.found, caught.value.known) == (SCHEMA + 1, SCHEMA)
    assert (tmp_path / "s.db").read_bytes() == before


async def test_a_migration_that_fails_leaves_the_old_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(tmp_path / "s.db")
    monkeypatch.setattr(file, "SCHEMA", SCHEMA + 2)
    scripts = (*MIGRATIONS, "create table one (x);", "create table two (x); create table one (x);")
    monkeypatch.setattr(file, "MIGRATIONS", scripts)
    with pytest.raises(apsw.SQLError):
        file.connect(tmp_path / "s.db", write=True)
    monkeypatch.setattr(file, "MIGRATIONS", (*scripts[:-1], "create table two (x);"))
    db = file.connect(tmp_path / "s.db", write=True)
    assert db.pragma("user_version") == SCHEMA + 2
    assert db.execute("select count(*) from one, two").fetchone() == (0,)
    db.close()


async def test_processes_that_create_the_file_at_once_share_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/new/s.db"
    children = [start("create", url, f"by-{number}") for number in range(4)]
    try:
        answers = [hear(child) for child in children]
        assert all(hear(child) == ["end"] for child in children)
    finally:
        for child in children:
            end(child)
    assert sorted(answers) == [["False"], ["False"], ["False"], ["True"]]
    world = await open_world(url, APP)
    assert ids(await world.read("s")) == [f"by-{answers.index(['True'])}"]
    await world.aclose()
    assert integrity(tmp_path / "new" / "s.db") == "ok"


async def test_open_handles_stay_the_same_over_many_appends(tmp_path: Path) -> None:
    """C020: over 1,000 appends."""

    def handles() -> list[str]:
        found: list[str] = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the one with which the folder is read
                found.append(str(link.readlink()))
        return sorted(each for each in found if str(tmp_path) in each)

    url = f"sqlite:{tmp_path}/s.db"
    before = handles()
    world = await open_world(url, APP)
    head = await begin(world)
    await world.wait("s", 0, 1)
    await world.sessions()
    await world.read("s")
    opened: list[str] = []
    for number in range(1000):
        head = await world.append("s", expected_head=head, epoch=0, records=[record(f"r{number}")])
        if number == 10:
            opened = handles()
    assert handles() == opened
    await world.aclose()
    assert handles() == before


async def test_describe_says_what_is_guaranteed_here(tmp_path: Path) -> None:
    world = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    said = await world.describe()
    await world.aclose()
    assert (said.name, said.url) == ("sqlite", f"sqlite:{tmp_path}/s.db")
    assert "FULL" in said.durability
    assert said.details["sqlite"] == apsw.sqlite_lib_version()
    assert said.details["path"] == str(tmp_path / "s.db")


async def test_an_empty_app_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="app"):
        await open_world(f"sqlite:{tmp_path}/s.db", "")


async def test_a_closed_world_says_so(tmp_path: Path) -> None:
    world = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    await world.aclose()
    await world.aclose()
    for call in (world.read("s"), world.create("s", [record("x")], PARKED)):
        with pytest.raises(StorageUnavailable, match="closed; open it again"):
            await call


@pytest.mark.parametrize(("kind", "says"), [("nfs4", "local disk"), ("tmpfs", "forgets"), ("ext4", "")])
async def test_a_file_system_that_weakens_the_promises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, says: str
) -> None:
    def told(_: Path) -> str:
        return kind

    monkeypatch.setattr(file, "file_system", told)
    world = await open_world(f"sqlite:{tmp_path}/s.db", APP)
    said = await world.describe()
    await world.aclose()
    assert said.details["file system"] == kind
    assert [says in each for each in said.warnings] == [True] * bool(says)


def test_a_url_that_names_a_host_is_refused_without_its_password() -> None:
    with pytest.raises(BadSetting, match="names a host") as refused:
        file.path_of("sqlite://user:secret@host/x.db")
    assert "secret" not in str(refused.value)
