"""What adapters share: a harness that speaks a JSON object a line on its standard input and output, asks
questions of its own, and has to be driven again from the log at any moment. Knows no adapter.

``conversation`` is the place to begin: one life as long as a worker drives it. ``serving`` answers what the
harness asks, ``delivery`` gives it messages once, ``admission`` is the exact barrier, ``stopping`` a stop."""
