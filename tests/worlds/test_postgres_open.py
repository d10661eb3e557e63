"""Opening: URLs as libpq users write them, logins, migrations, roles, schemas, and what ``describe`` says."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from harness_durable.errors import BadSetting, HarnessDurableError, LogTooNew, StorageUnavailable
from harness_durable.worlds import redact
from harness_durable_worlds import _postgres_migrate as migrate
from harness_durable_worlds._postgres_sql import SCHEMA, migrations_sql
from harness_durable_worlds._postgres_url import target_of
from harness_durable_worlds.postgres import exists, open_world, variables
from tests.worlds.postgres_kit import APP, PARKED, add, begin, ids, opened, plain, record
from tests.worlds.postgres_support import CURRENT, SYSTEM, Cluster, cluster, fresh_schema, pooled_url

SECRET = Cluster.password


@pytest.fixture
def server() -> Cluster:
    return cluster()


# ------------------------------------------------------------------------------------------- the URL

PARTS: list[tuple[str, dict[str, str]]] = [
    ("postgresql://", {}),
    ("postgresql://host", {"host": "host"}),
    ("postgres://u@host:5433/db", {"user": "u", "host": "host:5433", "dbname": "db"}),
    ("postgresql://u:p%40s%2Fs@h/db", {"user": "u", "password": "p@s/s", "host": "h", "dbname": "db"}),
    ("postgresql://u:pa#s?s+w@h/db", {"user": "u", "password": "pa#s?s+w", "host": "h", "dbname": "db"}),
    ("postgresql://u:a:b@h", {"user": "u", "password": "a:b", "host": "h"}),
    ("postgresql://:p@h", {"password": "p", "host": "h"}),
    ("postgresql://[::1]:5433,other/db", {"host": "[::1]:5433,other", "dbname": "db"}),
    ("postgresql:///db?host=/run/pg&user=me", {"dbname": "db", "host": "/run/pg", "user": "me"}),
    ("postgresql://%2Frun%2Fpg/db", {"host": "/run/pg", "dbname": "db"}),
    ("postgresql:///d%20b?password=a%26b%3Dc+d", {"dbname": "d b", "password": "a&b=c+d"}),
    ("postgresql://h/db?sslmode=require&sslrootcert=/a b", {"sslmode": "require", "sslrootcert": "/a b"}),
    ("postgresql://h/db?target_session_attrs=primary", {"target_session_attrs": "primary"}),
]


@pytest.mark.parametrize(("url", "wanted"), PARTS, ids=[url for url, _ in PARTS])
def test_a_url_is_read_as_libpq_reads_it(url: str, wanted: Mapping[str, str]) -> None:
    target = target_of(url, {})
    query = target.dsn.removeprefix("postgresql://").removeprefix("?")
    found = set(query.split("&")) if query else set[str]()
    assert {f"{name}={quote(value, safe='')}" for name, value in wanted.items()} <= found
    assert target.schema == "harness_durable"


def test_what_is_ours_does_not_reach_the_server() -> None:
    url = (
        "postgresql://h/db?schema=other&connect_timeout=3&application_name=me&keepalives=1&options=-c%20a%3Db"
    )
    target = target_of(url, {})
    assert target.dsn == "postgresql://?host=h&dbname=db"
    assert (target.schema, target.connect_seconds) == ("other", 3.0)
    assert target.server_settings == {"application_name": "me", "options": "-c a=b"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:db",
        "postgresql://u:pa@ss@h/db",
        "postgresql://u:p/w@h/db",
        "postgresql://h/db?sslmod=require",
        "postgresql://h/db?sslmode",
        "postgresql://h/db?connect_timeout=soon",
        "postgresql://h/db?schema=",
        "postgresql://h/db?schema=pg_temp",
        f"postgresql://h/db?schema={'x' * 64}",
        "postgresql://h/d%00b",
        "postgresql://u:%ff@h/db",
        "postgresql://h/db?service=none",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_words(url: str) -> None:
    if url.endswith("schema="):  # as if it were not there
        assert target_of(url, {}).schema == "harness_durable"
        return
    with pytest.raises(BadSetting, match="World URL") as refused:
        target_of(url, {"PGSERVICEFILE": "/nowhere"})
    assert "pa@ss" not in str(refused.value)


async def test_variables_stand_in_for_what_the_url_leaves_out(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(server.port))
    monkeypatch.setenv("PGUSER", server.user)
    monkeypatch.setenv("PGPASSWORD", server.password)
    monkeypatch.setenv("PGDATABASE", "postgres")
    monkeypatch.setenv("PGAPPNAME", "known")
    async with opened(f"postgresql:///?schema={fresh_schema()}") as [world], plain(server) as eye:
        await begin(world)
        rows = await eye.fetch("select 1 from pg_stat_activity where application_name = 'known'")
        assert rows
    assert {"PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGAPPNAME"} <= set(variables)
    assert "PGPASSWORD" not in variables


@pytest.mark.parametrize("how", ["parameter", "variable"])
async def test_a_service_file_says_where(
    server: Cluster, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["# ours", "[other]", "host=nowhere", "[mine]", "host=127.0.0.1", f"port={server.port}"]
    lines += [f"user={server.user}", f"password={server.password}", "dbname=none"]
    file = tmp_path / "services.conf"
    file.write_text("\n".join(lines))
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    schema = fresh_schema()
    if how == "variable":
        monkeypatch.setenv("PGSERVICE", "mine")
        url = f"postgresql:///postgres?schema={schema}"
    else:
        url = f"postgresql:///postgres?service=mine&schema={schema}"
    async with opened(url) as [world]:
        await begin(world)
        assert (await world.describe()).url == url


async def test_a_socket_and_a_password_file_work(server: Cluster, tmp_path: Path) -> None:
    place = f"postgresql://{server.user}@/postgres"
    async with opened(f"{place}?host={server.folder}&port={server.port}&schema={fresh_schema()}") as [world]:
        await begin(world)
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{server.port}:*:{server.user}:{server.password}\n")
    file.chmod(0o600)
    url = (
        f"postgresql://{server.user}@127.0.0.1:{server.port}/postgres?passfile={file}&schema={fresh_schema()}"
    )
    async with opened(url) as [world]:
        await begin(world)


async def test_no_error_and_no_description_shows_the_password(server: Cluster) -> None:
    url = server.url()
    wrong = url.replace("p%40ss", "SECRETp%40ss")
    closed = url.replace(f":{server.port}/", ":1/")
    missing = url.replace("/postgres?", "/nothing?")
    for bad, error in ((wrong, BadSetting), (closed, StorageUnavailable), (missing, BadSetting)):
        with pytest.raises(error) as refused:
            await open_world(bad, APP)
        told: BaseException | None = refused.value
        while told is not None:
            assert SECRET not in str(told)
            assert "p%40ss" not in str(told)
            told = told.__cause__
    async with opened(url) as [world]:
        seen = f"{await world.describe()} {target_of(url)!r} {redact(url)}"
    assert SECRET not in seen
    assert "p%40ss" not in seen


async def test_what_stands_in_the_way_of_a_login_is_said(server: Cluster) -> None:
    with pytest.raises(BadSetting, match=r"~/\.pgpass"):
        await open_world(server.url().replace("p%40ss", "wrong"), APP)
    with pytest.raises(BadSetting, match="createdb"):
        await open_world(server.url().replace("/postgres?", "/nothing?"), APP)
    with pytest.raises(HarnessDurableError, match=r"SSL|TLS"):
        await open_world(f"{server.url()}&sslmode=require", APP)
    with pytest.raises(BadSetting, match="sslmode"):
        await open_world(f"{server.url()}&sslmode=maybe", APP)
    with pytest.raises(BadSetting, match="default"):
        await open_world(server.url(), "")


async def test_a_connection_is_encrypted_and_the_server_checked_when_asked() -> None:
    server = Cluster(SYSTEM)
    try:
        key, certificate = server.data / "server.key", server.data / "server.crt"
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ]
        command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        server.own(key, certificate)
        server.sql("alter system set ssl = on")
        server.restart()
        url = server.url()
        async with opened(f"{url}&sslmode=require") as [world], plain(server) as eye:
            await begin(world)
            query = (
                "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = $1"
            )
            assert {row[0] for row in await eye.fetch(query, "harness-durable")} == {True}
        with pytest.raises(HarnessDurableError):
            await open_world(
                f"{url}&sslmode=verify-full&sslrootcert={certificate}", APP
            )  # 127.0.0.1 is not in it
        named = url.replace("@127.0.0.1", "@localhost")
        async with opened(f"{named}&sslmode=verify-full&sslrootcert={certificate}") as [world]:
            await begin(world, "t")
    finally:
        server.destroy()


# ------------------------------------------------------------------------------------- the schema


async def test_many_replicas_that_start_at_once_migrate_once(server: Cluster) -> None:
    schema = fresh_schema()
    worlds = await asyncio.gather(*(open_world(server.url(schema), APP) for _ in range(12)))
    try:
        made = await asyncio.gather(*(world.create("s", [record("first")], PARKED) for world in worlds))
        assert sum(made) == 1
    finally:
        await asyncio.gather(*(world.aclose() for world in worlds))
    assert server.sql(f"select version from {schema}.migration") == [str(n) for n in range(1, SCHEMA + 1)]


@pytest.mark.parametrize("schema", ['Odd "name"; --', "sélect", "table"])
async def test_any_name_can_be_a_schemas(server: Cluster, schema: str) -> None:
    try:
        async with opened(server.url(quote(schema))) as [world]:
            await begin(world)
            assert await add(world, "a", 1) == 2
    finally:
        name = schema.replace('"', '""')
        server.sql(f'drop schema "{name}" cascade')


async def test_a_newer_schema_is_refused_and_untouched(server: Cluster) -> None:
    schema = fresh_schema()
    async with opened(server.url(schema)) as [world]:
        await begin(world)
    server.sql(f"insert into {schema}.migration (version) values ({SCHEMA + 1})")
    with pytest.raises(LogTooNew) as refused:
        await open_world(server.url(schema), APP)
    assert schema in str(refused.value)
    server.sql(f"delete from {schema}.migration where version > {SCHEMA}")
    async with opened(server.url(schema)) as [world]:
        assert ids(await world.read("s")) == ["first"]


async def test_to_look_whether_there_is_a_world_makes_none(server: Cluster) -> None:
    schema = fresh_schema()
    assert not await exists(server.url(schema))
    assert server.sql(f"select 1 from pg_namespace where nspname = '{schema}'") == []
    async with opened(server.url(schema)):
        assert await exists(server.url(schema))
    with pytest.raises(BadSetting, match="createdb"):
        await exists(server.url(schema).replace("/postgres?", "/nothing?"))


async def test_an_older_schema_is_brought_up_to_date(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later version will, with data in it."""
    schema = fresh_schema()
    async with opened(server.url(schema)) as [world]:
        await begin(world)
    script = f"alter table {schema}.session add column extra text; insert into {schema}.migration values (2)"

    def migration(_: str, version: int) -> str:
        return script if version == 2 else ""

    monkeypatch.setattr(migrate, "SCHEMA", 2)
    monkeypatch.setattr(migrate, "migration", migration)
    worlds = await asyncio.gather(*(open_world(server.url(schema), APP) for _ in range(4)))
    await asyncio.gather(*(world.aclose() for world in worlds))
    assert server.sql(f"select max(version), count(*) from {schema}.migration") == ["2|2"]
    assert server.sql(f"select session, extra is null from {schema}.session") == ["s|t"]


def _role(server: Cluster, name: str) -> str:
    """The URL of a role that may do nothing yet."""
    server.sql(f"create role {name} login")
    return f"postgresql://{name}@/postgres?host={server.folder}&port={server.port}&schema={name}"


async def test_a_role_without_the_right_to_create_learns_what_to_do(server: Cluster) -> None:
    name = fresh_schema()
    url = _role(server, name)
    with pytest.raises(BadSetting) as refused:
        await open_world(url, APP)
    assert "harness-durable worlds migrate --print" in str(refused.value)
    assert server.sql(f"select 1 from pg_namespace where nspname = '{name}'") == []
    server.sql(migrations_sql(name))
    with pytest.raises(BadSetting, match="migrate --print"):
        await open_world(url, APP)
    server.sql(
        f"grant usage on schema {name} to {name};"
        f"grant select, insert, update, delete on all tables in schema {name} to {name}"
    )
    async with opened(url) as [world]:
        await begin(world)
        assert await add(world, "a", 1) == 2
        await world.delete("s")


async def test_a_role_that_owns_its_schema_needs_no_other_right(server: Cluster) -> None:
    name = fresh_schema()
    url = _role(server, name)
    server.sql(f"create schema {name} authorization {name}")
    async with opened(url) as [world]:
        await begin(world)


def test_the_printed_migrations_do_no_harm_when_they_are_applied_again(server: Cluster) -> None:
    schema = fresh_schema()
    server.sql(migrations_sql(schema))
    with pytest.raises(AssertionError, match="already exists"):
        server.sql(migrations_sql(schema))
    assert server.sql(f"select count(*) from {schema}.migration") == [str(SCHEMA)]


# ------------------------------------------------------------------------------------ what is so here


async def test_what_is_so_on_this_server_is_described() -> None:
    schema, server = fresh_schema(), Cluster(CURRENT)
    try:
        async with opened(server.url(schema)) as [world]:
            told = await world.describe()
    finally:
        server.destroy()
    assert told.name == "postgres"
    assert told.details["server"].startswith("18")
    assert (told.details["fsync"], told.details["synchronous_commit"]) == ("on", "on")
    assert told.details["notifications"] == "on"
    assert told.details["pooler"] == "none"
    assert told.details["schema"] == f"{schema} (version {SCHEMA})"
    assert told.warnings == ()


async def test_a_setting_that_loses_what_was_acknowledged_is_a_warning(server: Cluster) -> None:
    async with opened(f"{server.url()}&options=-c%20synchronous_commit%3Doff") as [world]:
        told = await world.describe()
    assert (told.details["synchronous_commit"], told.details["fsync"]) == ("off", "off")
    assert [line.split(" ")[0] for line in told.warnings] == ["fsync", "synchronous_commit"]


async def test_a_pooler_is_noticed_and_said() -> None:
    """C095: the conformance suite runs behind it, too."""
    async with opened(pooled_url(fresh_schema())) as [world]:
        await begin(world)
        told = await world.describe()
    assert told.details["server"].startswith("15")
    assert told.details["notifications"] == "off: polling"
    assert "pooler" in told.details["pooler"]
    assert [line for line in told.warnings if "pooler stands between" in line]
    assert [line for line in told.warnings if "notifications do not arrive" in line]
