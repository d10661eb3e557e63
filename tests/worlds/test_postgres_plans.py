"""What a look costs when there are many sessions: the plans of the statements, among 100,000 parked ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness_durable_worlds._postgres_sql import migrations_sql, statements
from tests.worlds.postgres_support import Cluster, cluster, fresh_schema

PARKED = 100_000
QUEUE = {
    "lock_free": "session_free",
    "free_due": "session_free",
    "lock_owned": "session_owned",
    "owned_due": "session_owned",
    "owners": "session_owned",
}
"""The index that a statement has to use; parked sessions are in neither."""
BY_NAME = (
    "append",
    "take",
    "lock_one",
    "lock_all",
    "release",
    "verdict",
    "read",
    "heads",
    "row",
    "snapshot",
    "put_progress",
)


@pytest.fixture(scope="module")
def crowded() -> Iterator[tuple[Cluster, str]]:
    server, schema = cluster(), fresh_schema()
    server.sql(migrations_sql(schema))
    server.sql(
        f"insert into {schema}.session (session, app, head, epoch, status, created, updated) "
        f"select 'parked' || n, 'tests', 1, 0, 'parked', 1, 1 from generate_series(1, {PARKED}) n;"
        f"analyze {schema}.session"
    )
    yield server, schema
    server.sql(f"drop schema {schema} cascade")


def plan(crowded: tuple[Cluster, str], name: str) -> str:
    """The plan of a statement whatever its arguments are, as a connection keeps it."""
    server, schema = crowded
    return "\n".join(server.sql(f"explain (generic_plan, costs off) {statements(schema)[name]}"))


@pytest.mark.parametrize(("name", "index"), QUEUE.items())
def test_the_queue_is_read_through_an_index_without_parked_sessions(
    crowded: tuple[Cluster, str], name: str, index: str
) -> None:
    found = plan(crowded, name)
    assert f"using {index}" in found, found
    assert "Seq Scan on session" not in found, found
    assert "session_by_app" not in found, found


@pytest.mark.parametrize("name", BY_NAME)
def test_a_session_is_found_by_its_name(crowded: tuple[Cluster, str], name: str) -> None:
    found = plan(crowded, name)
    assert "Seq Scan on session" not in found, found
    for line in found.splitlines():
        if "Index Cond" in line and "app =" in line:
            assert "session" in line, found


def test_parked_sessions_are_in_no_index_of_the_queue(crowded: tuple[Cluster, str]) -> None:
    server, schema = crowded
    for index in ("session_free", "session_owned"):
        assert server.sql(f"select pg_relation_size('{schema}.{index}') <= 8192") == ["t"]
