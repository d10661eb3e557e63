"""Entry of ``python3 -I -S KEEPER RUN``: makes this directory importable as the package ``keeper``.

The directory above is put last on the path, so that nothing in it can hide the standard library.
"""

import importlib
import sys

here = sys.path.pop(0)
sys.path.append(here.rstrip("/").rpartition("/")[0] or ("/" if here.startswith("/") else "."))
importlib.import_module("keeper.main").main(sys.argv[1])
