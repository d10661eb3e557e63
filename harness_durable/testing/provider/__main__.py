"""``python -m harness_durable.testing.provider``: the provider as a process of its own.

The first line on stdout is its URL, printed when it serves. It runs until SIGTERM or SIGINT, whatever
happens to the processes that use it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import anyio

from harness_durable.errors import UsageError
from harness_durable.testing.provider.mood import MOODS, named
from harness_durable.testing.provider.policies import POLICIES, policy_named
from harness_durable.testing.provider.server import ScriptedProvider


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness_durable.testing.provider",
        description="A scripted model behind the model APIs of Anthropic and OpenAI.",
    )
    names = ", ".join(sorted(POLICIES))
    parser.add_argument(
        "--policy", default="echo", help=f"{names}, script:FILE or module:attribute (default: echo)"
    )
    parser.add_argument("--options", default="", help="the policy's options, a JSON object")
    parser.add_argument("--ledger", type=Path, help="file to append what was asked and paid to")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (default): any free port")
    parser.add_argument("--mood", default="calm", help=f"{', '.join(MOODS)} (default: calm)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mood")
    parser.add_argument(
        "--accepts-key", default="", metavar="HASH", help="first 16 hex digits of the key's sha256"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="answer conversations that the real API refuses"
    )
    return parser


async def _serve(provider: ScriptedProvider) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with provider:
            print(provider.url, flush=True)
            async for _ in signals:
                return


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop; 0 then, 2 for arguments that cannot be used."""
    given = _arguments().parse_args(arguments)
    try:
        provider = ScriptedProvider(
            policy_named(given.policy, given.options),
            ledger=given.ledger,
            mood=named(given.mood, given.seed),
            check=not given.no_check,
            accepts_key=given.accepts_key,
            host=given.host,
            port=given.port,
        )
        anyio.run(_serve, provider)
    except (UsageError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
