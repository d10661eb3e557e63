"""Pi, held as it is: its RPC mode driven over stdio."""
