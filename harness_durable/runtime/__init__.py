"""What happens to a turn: the Python API, the worker, the driver."""
