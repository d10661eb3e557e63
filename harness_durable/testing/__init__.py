"""What we ship for tests: conformance suites and the scripted model provider.

Nothing is imported here on purpose: import the module that you need, so that a test of one World does
not load a web server.
"""
