"""For all tests: Ctrl-C works in what they start, also if they run in the background themselves."""

from __future__ import annotations

import signal

# A shell lets its background jobs ignore SIGINT, and what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
