"""Real harnesses are killed at every named point; then the log, the ledgers and the machine must agree."""
