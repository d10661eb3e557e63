"""Benchmarks, not tests: numbers are medians of interleaved rounds in one run, with their spread."""
