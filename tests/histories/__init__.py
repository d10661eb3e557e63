"""Logs that released versions wrote, kept for ever."""
