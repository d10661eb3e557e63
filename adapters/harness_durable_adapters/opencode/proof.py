"""What binaries of this harness were proven to do: see ``common.proof``."""

from __future__ import annotations

from ..common.proof import Proofs
from . import install
from .selftest import self_test

_PROOFS = Proofs(install.NAME, install.is_supported, self_test)

prove = _PROOFS.prove
refuse_unproven = _PROOFS.refuse_unproven
