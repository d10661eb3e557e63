"""Which OpenCode binaries we know, where they come from, and how the one to use is found.

The binary is its maker's, under the maker's terms: it is fetched by the user's own npm and never shipped
with us. What surprises: npm's package chooses among packages with one binary each, by platform and
processor, and for Linux on x64 we choose as it does."""

from __future__ import annotations

from pathlib import Path

from harness_durable.harnesses import Source
from harness_durable.pinned import Pinned

NAME = "opencode"

_DIGESTS = {
    ("1.18.33", "linux-x64"): (
        "sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw=="
    ),
    ("1.18.33", "linux-x64-baseline"): (
        "sha512-1KQGBiiDDeL/VHHbHkOvvFo8Jr97WT5+C1tear+p7IcDTnXgVHXqIjU4O4jM4mHQzykTP2i884FCnW5LDa+zCA=="
    ),
    ("1.18.32", "linux-x64"): (
        "sha512-CIatvoyi8V5a56xyw6ZUnsKxB9wqYIZqfNeqUNWhBBY4aENAm907LP0xXAwL6tR0cYbqNl2+Dvx8mOqXIxbDeQ=="
    ),
    ("1.18.32", "linux-x64-baseline"): (
        "sha512-XXO4htNdJEoj935NGMYNGjD1M8ZiJPo2u2cQzIyeBjinoClI7iXOHBPw+Twm/ZuzFHKtmI2594bt0GWIwTetkw=="
    ),
}


def build(cpuinfo: str) -> str:
    """Which of the Linux builds this processor can run, from its description by the kernel."""
    return "linux-x64" if " avx2 " in f"{cpuinfo} ".replace("\n", " ") else "linux-x64-baseline"


def _source(version: str, which: str) -> Source:
    return Source(
        NAME,
        version,
        "npm",
        f"opencode-{which}",
        version,
        "package/bin/opencode",
        185_400_000,
        digests=(_DIGESTS[version, which],),
    )


def _sources() -> dict[str, Source]:
    described = Path("/proc/cpuinfo")
    which = build(described.read_text() if described.exists() else "")
    return {version: _source(version, which) for version in ("1.18.33", "1.18.32")}


SOURCES = _sources()
"""By version; the default comes first."""

PINNED = Pinned(NAME, SOURCES)
