"""The model of our pages: it says ``ok``, or works for a while on what is called slow."""

from __future__ import annotations

from harness_durable.testing.provider.messages import Request, first_user_text
from harness_durable.testing.provider.policies import Echo, Steps
from harness_durable.testing.provider.reply import Reply

QUICK, SLOW = Echo(), Steps(steps=3, pair_every=0, nap=3)


def policy(request: Request) -> Reply:
    """Chosen by the conversation's first message."""
    return (SLOW if "slow" in first_user_text(request) else QUICK)(request)
