"""Which Codex binaries we know, where they come from, and how the one to use is found.

The binary is its maker's, under the maker's terms: it is fetched by the user's own pip or npm and never
shipped with us. What surprises: npm's package is a Node script beside the real binary, which we start
directly; without npm's build for this platform the version that PyPI has is the default."""

from __future__ import annotations

import platform

from harness_durable.harnesses import Source
from harness_durable.pinned import Pinned

NAME = "codex"

_KEEP = ("bin/", "codex-path/", "codex-resources/bwrap", "codex-package.json")
"""The binary, its host for code mode, the programs it puts on the PATH of its shells, and its own sandbox;
what is left out of npm's package is for talking to it by voice."""

_NPM = {
    "0.171.0": Source(
        NAME,
        "0.171.0",
        "npm",
        "@openai/codex",
        "0.171.0-linux-x64",
        "package/vendor/x86_64-unknown-linux-musl/bin/codex",
        391_200_000,
        root="package/vendor/x86_64-unknown-linux-musl",
        keep=_KEEP,
        digests=(
            "sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==",
        ),
    )
}
_PYPI = {
    "0.163.0": Source(
        NAME,
        "0.163.0",
        "pypi",
        "openai-codex-cli-bin",
        "0.163.0",
        "codex_cli_bin/bin/codex",
        377_100_000,
        root="codex_cli_bin",
        keep=_KEEP,
        digests=(
            "sha256=76db41fb07fdf9ddacbe892b48d21dfde270031ec0f5666b5e558114355f006d",  # Linux x64
            "sha256=bb2b0d117eeb02608738cf2bcdf51f6a036343d0028272e11a94e72b0d23b141",  # Linux arm64
            "sha256=6b4a9e614e30442f9c2b804604b7fba12f218627f709fe5ba1960c01dac15ca1",  # macOS x64
            "sha256=dd0e6570930167f0e15ec94c5fb494a4a5a9dceb0a97113176c7b47c826cda05",  # macOS arm64
        ),
    )
}

SOURCES = {**(_NPM if (platform.system(), platform.machine()) == ("Linux", "x86_64") else {}), **_PYPI}
"""By version; the default comes first."""

PINNED = Pinned(NAME, SOURCES)
