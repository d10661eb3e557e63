"""The statements and migrations of ``postgres.sql``, by name, for one schema of a database."""

from __future__ import annotations

import re
from importlib import resources

_HEADING = re.compile(r"^-- :(name|migration) (\w+)$", re.MULTILINE)
_SCHEMA = re.compile(r"\bhd\.")
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_NOW = "(extract(epoch from statement_timestamp()) * 1000)::bigint"

MIGRATION_LOCK = 0x48447572
"""Of the transaction in which a migration runs, and of nothing else."""


def _load() -> tuple[dict[str, str], tuple[str, ...]]:
    text = resources.files("harness_durable_worlds").joinpath("postgres.sql").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    found = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    bare = [(what, name, _COMMENT.sub("", sql).strip()) for what, name, sql in found]
    named = {name: sql for what, name, sql in bare if what == "name"}
    return named, tuple(sql for what, _, sql in bare if what == "migration")


_STATEMENTS, _MIGRATIONS = _load()

SCHEMA = len(_MIGRATIONS)
"""The schema that this version writes; a database with a larger number is refused."""


def quoted(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _placed(sql: str, schema: str) -> str:
    prefix = f"{quoted(schema)}."
    return _SCHEMA.sub(lambda _: prefix, sql).replace("{now}", _NOW)


def statements(schema: str) -> dict[str, str]:
    """``statements(schema)[name]`` is one statement."""
    return {name: _placed(sql, schema) for name, sql in _STATEMENTS.items()}


def bookkeeping(schema: str, *, create: bool = True) -> str:
    """What has to be there before the first migration; harmless if it is. Without ``create`` the schema is
    there already: even to create it if it does not exist needs the right to create one."""
    begin = f"create schema if not exists {quoted(schema)};\n" if create else ""
    return (
        f"{begin}create table if not exists {quoted(schema)}.migration "
        "(version bigint primary key, applied timestamptz not null default now());"
    )


def migration(schema: str, version: int) -> str:
    """The script that leads from ``version`` - 1 to ``version``; run it in one transaction."""
    done = f"insert into {quoted(schema)}.migration (version) values ({version});"
    return f"{_placed(_MIGRATIONS[version - 1], schema)}\n{done}"


def migrations_sql(schema: str = "harness_durable") -> str:
    """Everything from an empty database to the newest schema, for ``psql``: each step is a transaction, and
    one that has been done already fails without changing anything."""
    name = " ".join(quoted(schema).splitlines())
    head = (
        "-- For psql, as a role that may create a schema here. After an upgrade once more: a step that was\n"
        "-- done before fails then, and changes nothing. The role of the workers needs no more than\n"
        f"--   grant usage on schema {name} to ROLE;\n"
        f"--   grant select, insert, update, delete on all tables in schema {name} to ROLE;\n\n"
    )
    lock = f"select pg_advisory_xact_lock({MIGRATION_LOCK});"
    steps = [bookkeeping(schema), *(migration(schema, number) for number in range(1, SCHEMA + 1))]
    return head + "".join(f"begin;\n{lock}\n{step}\ncommit;\n\n" for step in steps)
