"""Claude Code, held as it is: hooks as the barrier, its transcript mirrored, its turns continued in the
middle."""

from .adapter import ClaudeCode

__all__ = ("ClaudeCode",)
