"""Which versions of Pi we know, where they come from, and how the one to use is found.

It is its maker's, under the maker's terms: it is fetched by the user's own npm and never shipped with us.
What surprises: it is a script for Node.js 22 or newer, so a Node.js of our own is installed with it; and of
its many dependencies only two are: the others are in its bundle, or for what we do not use."""

from __future__ import annotations

from harness_durable.harnesses import EVERYTHING, Source
from harness_durable.nodejs import NODE
from harness_durable.pinned import Pinned

NAME = "pi"

_JITI = Source(
    NAME,
    "2.7.0",
    "npm",
    "jiti",
    "2.7.0",
    "package/lib/jiti.cjs",
    1_800_000,
    root="package",
    keep=EVERYTHING,
    digests=(
        "sha512-AC/7JofJvZGrrneWNaEnJeOLUx+JlGt7tNa0wZiRPT4MY1wmfKjt2+6O2p2uz2+skll8OZZmJMNqeke7kKbNgQ==",
    ),
    into="node_modules/jiti",
)
"""Loads extensions."""

_PHOTON = Source(
    NAME,
    "0.3.4",
    "npm",
    "@silvia-odwyer/photon-node",
    "0.3.4",
    "package/photon_rs.js",
    2_300_000,
    root="package",
    keep=EVERYTHING,
    digests=(
        "sha512-bnly4BKB3KDTFxrUIcgCLbaeVVS8lrAkri1pEzskpmxu9MdfGQTy8b8EgcD83ywD3RPMsIulY8xJH5Awa+t9fA==",
    ),
    into="node_modules/@silvia-odwyer/photon-node",
)
"""Makes images smaller for the model."""

_DIGESTS = {
    "1.6.0": (
        "sha512-zX1BVEsshx7A2MRuQ6jfr3RJGWw4Wn+vLq5ZfmlvS1RskhRmByaSZVXH/zcwRrWHO7qPgs98pNCbPOEti/t0fQ=="
    ),
    "1.5.2": (
        "sha512-mUWI04rqF1Vd/m1q+Ps1XeWsTXEVvRUnsmRa83I3Dzua0Tx5bYS93imeqtIfrXf7PkkaR6ERz+AuQhIJlom5yA=="
    ),
}


def _source(version: str) -> Source:
    return Source(
        NAME,
        version,
        "npm",
        "@earendil-works/pi-coding-agent",
        version,
        "package/dist/bundle/cli.js",
        30_000_000,
        root="package",
        keep=EVERYTHING,
        digests=(_DIGESTS[version],),
        parts=(_JITI, _PHOTON),
        runtime=NODE,
    )


SOURCES = {version: _source(version) for version in _DIGESTS}
"""By version; the default comes first."""

PINNED = Pinned(NAME, SOURCES)
