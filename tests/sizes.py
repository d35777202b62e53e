"""How much a test does: less where nothing is compiled (NUMBA_DISABLE_JIT=1), more if asked (HEDGELAB_THOROUGH=1)."""

import os

import numba
import pytest

JIT_OFF = bool(numba.config.DISABLE_JIT)

needs_jit = pytest.mark.skipif(JIT_OFF, reason="nothing is compiled")
large = pytest.mark.skipif(JIT_OFF, reason="too many rounds for plain Python")


def few(compiled, plain):
    """Return how many rounds, seeds or examples a test takes: `compiled` of them, or `plain` where nothing is."""
    return plain if JIT_OFF else compiled


def thorough(every, usual):
    """Return a test's cases: the usual ones, or every one where HEDGELAB_THOROUGH is set."""
    return every if os.environ.get("HEDGELAB_THOROUGH") else usual
