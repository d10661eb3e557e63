"""OpenCode, held as it is: its server driven over HTTP."""
