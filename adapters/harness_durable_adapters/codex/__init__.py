"""Codex, held as it is: its app-server driven over stdio, approvals as the barrier, its conversations begun
anew from the log and its turns continued in the middle."""

from .adapter import Codex

__all__ = ("Codex",)
