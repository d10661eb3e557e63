"""The statements and migrations of ``sqlite.sql``, by name."""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^-- :(name|migration) (\w+)$", re.MULTILINE)


def _load() -> tuple[dict[str, str], tuple[str, ...]]:
    text = Path(__file__).with_name("sqlite.sql").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    found = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    named = {name: sql.strip() for what, name, sql in found if what == "name"}
    return named, tuple(sql for what, _, sql in found if what == "migration")


SQL, MIGRATIONS = _load()
"""``SQL[name]`` is one statement; ``MIGRATIONS[n - 1]`` the script that leads to schema ``n``."""

SCHEMA = len(MIGRATIONS)
"""The schema that this version writes; a database with a larger number is refused."""
