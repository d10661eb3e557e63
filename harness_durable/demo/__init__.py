"""The product in one minute: a real harness, a scripted model, a death in the middle of a side effect."""
