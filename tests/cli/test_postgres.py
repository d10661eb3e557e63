"""What the command line says and does about Postgres: migrating, roles without rights, ``doctor``."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.kit import Cli, sentence
from tests.worlds.postgres_support import SYSTEM, Cluster, cluster, fresh_schema, pooled_url


def versions(schema: str) -> list[str]:
    return cluster().sql(f"select count(*) from {schema}.migration")


def checks(cli: Cli) -> dict[str, list[tuple[str, str]]]:
    """The states and details of what ``doctor`` looked at, by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in map(json.loads, cli("doctor", "--quick", "--json").stdout.splitlines()):
        if "check" in line:
            found.setdefault(line["check"], []).append((line["state"], line["detail"]))
    return found


# ---------------------------------------------------------------------------------- migrating


def test_migrate_sets_up_the_schema_and_says_so_again_and_again(tmp_path: Path) -> None:
    schema = fresh_schema()
    cli = Cli(tmp_path, "sqlite:elsewhere.db")
    for _ in range(2):
        done = cli("worlds", "migrate", cluster().url(schema))
        assert done.returncode == 0, done.stderr
        assert f"up to date, schema {schema} (version 1)" in done.stdout.decode()
        assert versions(schema) == ["1"]
    assert cluster().rows_of(schema) == [], "it begins nothing"


def test_migrate_without_a_url_takes_the_setting(postgres: Cli) -> None:
    [told] = postgres.json("worlds", "migrate")
    assert told["migrations"]
    assert versions(told["schema"].partition(" ")[0]) == ["1"]


def test_print_connects_to_nothing_and_gives_psql_what_it_needs(tmp_path: Path) -> None:
    schema = fresh_schema()
    done = Cli(tmp_path, "sqlite:x.db")(
        "worlds", "migrate", "--print", f"postgresql://nobody:secret@192.0.2.1/none?schema={schema}"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"secret" not in done.stdout
    cluster().sql(done.stdout.decode())
    assert versions(schema) == ["1"]


@pytest.mark.parametrize("words", [[], ["--print"]])
def test_a_world_without_migrations_says_so_and_none_is_made(words: list[str], cli: Cli) -> None:
    done = cli("worlds", "migrate", *words)
    assert (done.returncode, done.stdout) == (0, b"")
    assert "has no migrations" in sentence(done)
    assert list(cli.folder.glob("world*")) == []


def test_a_role_without_rights_is_told_a_command_that_works(tmp_path: Path) -> None:
    """The sentence's own command, its output run by somebody who may, and its grants: then it is usable."""
    server, name = cluster(), fresh_schema()
    server.sql(f"create role {name} login password 'kept secret'")
    login, place = f"{name}:{quote('kept secret')}", f"host={server.folder}&port={server.port}"
    cli = Cli(tmp_path, f"postgresql://{login}@/postgres?{place}&schema={name}")
    assert cli("worlds", "migrate").returncode == 2
    said = sentence(cli("worlds", "migrate"))
    assert "kept secret" not in said and quote("kept secret") not in said
    found = re.search(r"`harness-durable (worlds migrate --print [^`]*)`", said)
    assert found is not None
    script = cli(*shlex.split(found[1])).stdout.decode()
    server.sql(script)
    grants = [line.removeprefix("--   ") for line in script.splitlines() if line.startswith("--   grant")]
    assert cli("worlds", "migrate").returncode == 2
    server.sql("\n".join(grants).replace("ROLE", name))
    assert cli("worlds", "migrate").returncode == 0
    cli.log("s")
    assert [row["session"] for row in cli.json("sessions")] == ["s"]


# ------------------------------------------------------------------------------------- doctor


def test_doctor_says_how_a_server_is_reached_and_what_it_does_not_promise(postgres: Cli) -> None:
    """The tests' server does not wait for the disk, which is worth a warning."""
    found = checks(postgres)
    [(state, told), *warned] = found["world"]
    assert state == "ok"
    assert "committed before it is told (synchronous_commit=on, fsync=off)" in told
    assert "at once, by LISTEN and NOTIFY" in told
    assert {state for state, _ in warned} == {"warn"}
    assert "fsync is off" in warned[0][1]
    [(_, details)] = found["world postgres"]
    for words in ("server: ", "schema: t_", "notifications: on", "pooler: none", "connections: 4 for each"):
        assert words in details
    assert re.search(r"clock: the server's is \d+\.\d s (ahead of|behind) this host's", details)


def test_doctor_sees_a_pooler_and_what_it_costs(tmp_path: Path) -> None:
    found = checks(Cli(tmp_path, pooled_url(fresh_schema())))
    assert "by polling, every 150 ms" in found["world"][0][1]
    warned = "\n".join(detail for state, detail in found["world"] if state == "warn")
    assert "a connection pooler stands between" in warned
    assert "notifications do not arrive" in warned
    assert "pooler: a connection pooler" in found["world postgres"][0][1]


def test_doctor_warns_of_commits_that_do_not_wait(tmp_path: Path) -> None:
    server = cluster(SYSTEM)
    cli = Cli(tmp_path, server.url() + f"&options={quote('-c synchronous_commit=off')}")
    assert "synchronous_commit is off" in "\n".join(detail for _, detail in checks(cli)["world"])


@pytest.mark.parametrize("form", ["url", "parameter", "variable"])
def test_doctor_never_prints_a_password(form: str, tmp_path: Path) -> None:
    password = Cluster.password
    escaped, place = quote(password, safe=""), f"@127.0.0.1:{cluster().port}/postgres?schema={fresh_schema()}"
    cli = Cli(tmp_path, f"postgresql://{Cluster.user}{place}")
    if form == "url":
        cli.env["HARNESS_DURABLE_WORLD"] = f"postgresql://{Cluster.user}:{escaped}{place}"
    elif form == "parameter":
        cli.env["HARNESS_DURABLE_WORLD"] += f"&password={escaped}"
    else:
        cli.env["PGPASSWORD"] = password
    for words in (["doctor", "--quick"], ["doctor", "--quick", "--json"]):
        done = cli(*words)
        said = (done.stdout + done.stderr).decode()
        assert f"127.0.0.1:{cluster().port}" in said
        assert json.dumps(password)[1:-1] not in said
        assert password not in said
        assert escaped not in said


def test_doctor_says_what_to_do_when_the_server_is_not_there(tmp_path: Path) -> None:
    cli = Cli(tmp_path, "postgresql://nobody:secret@127.0.0.1:1/none")
    [(state, told)] = checks(cli)["world"]
    assert state == "fail"
    assert "see that the server runs and can be reached" in told
    assert "secret" not in told
