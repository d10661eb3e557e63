"""Which Claude Code binaries we know, where they come from, and how the one to use is found.

The binary is its maker's, under the maker's terms: it is fetched by the user's own pip or npm and never
shipped with us."""

from __future__ import annotations

from harness_durable.harnesses import Source
from harness_durable.pinned import Pinned

NAME = "claude-code"

SOURCES: dict[str, Source] = {
    "2.1.332": Source(
        NAME,
        "2.1.332",
        "pypi",
        "claude-agent-sdk",
        "0.2.189",
        "claude_agent_sdk/_bundled/claude",
        402_325_736,
    ),
    "2.1.197": Source(
        NAME,
        "2.1.197",
        "npm",
        "@anthropic-ai/claude-code-linux-x64",
        "2.1.197",
        "package/claude",
        246_000_000,
    ),
}
"""By version; the default comes first."""

PINNED = Pinned(NAME, SOURCES)
