"""Answers of a person to questions of the model. Pure.

A question is asked as a permission: the reason that comes with a yes holds the answers."""

from __future__ import annotations


def lines(reason: str, count: int) -> list[str]:
    """``count`` answers out of one text: a line each, and the last one for all that are left."""
    said = [line.strip() for line in reason.splitlines() if line.strip()] or ["yes"]
    return [said[min(place, len(said) - 1)] for place in range(count)]
