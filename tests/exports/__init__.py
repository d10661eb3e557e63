"""Sessions in the formats of other tools."""
