"""The exponential, the lane reductions, the coins, and the way back to plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgelab import coins
from hedgelab._jit import uncompiled
from hedgelab.lanes import lane_dot, lane_max, lane_min, lane_sum
from hedgelab.prefetch import fetch_row
from hedgelab.vexp import vexp

plain_vexp = uncompiled(vexp)


@given(st.floats(-800, 800))
def test_vexp_plain_and_compiled_give_the_same_bits(x):
    assert vexp(x) == plain_vexp(x)


@given(st.floats(-707.9, 709.0))
def test_vexp_is_accurate(x):
    # 11 digits of argument reduction error would show at once; libm's exp is right to 1 ulp
    assert vexp(x) == pytest.approx(math.exp(x), rel=4.5e-16, abs=0)


@pytest.mark.parametrize(
    ("x", "value"), [(-np.inf, 0.0), (-1e300, 0.0), (0.0, 1.0), (-0.0, 1.0), (1e300, math.exp(709.0))]
)
def test_vexp_at_the_ends(x, value):
    assert vexp(x) == pytest.approx(value, rel=1e-15)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_lanes(values):
    x = np.array(values)
    y = x[::-1].copy()
    for kernel, naive in ((lane_max, max(values)), (lane_min, min(values))):
        assert kernel(x) == naive
        assert uncompiled(kernel)(x) == naive
    assert lane_sum(x) == pytest.approx(math.fsum(values), abs=1e-8)
    assert lane_dot(x, y) == pytest.approx(math.fsum(x * y), abs=1e-2)
    assert lane_sum(x) == uncompiled(lane_sum)(x)
    assert lane_dot(x, y) == uncompiled(lane_dot)(x, y)


def test_philox_known_answers():
    # from the known-answer file of the Random123 distribution (Salmon et al. 2011), philox4x32, 10 rounds
    low = 0xFFFFFFFF
    for philox in (coins._philox, uncompiled(coins._philox)):
        for arguments, answer in (
            ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            ((low,) * 6, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0),
                (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
            ),
        ):
            assert tuple(int(word) & low for word in philox(*arguments)) == answer


@given(
    seed=st.integers(0, 2**56 - 1),
    sequence=st.integers(0, 2**63 - 1),
    start=st.integers(0, 2**32 - 20),
    replicate=st.integers(0, 2**32 - 1),
)
def test_coins_depend_on_the_place_alone(seed, sequence, start, replicate):
    whole = coins.uniforms(seed, coins.COIN, sequence, start, 8, replicate)
    assert ((whole >= 0) & (whole < 1)).all()
    assert coins.uniforms(seed, coins.COIN, sequence, start + 3, 5, replicate).tolist() == whole[3:].tolist()
    out = np.empty(8)
    uncompiled(coins.fill)(seed, coins.COIN, sequence, start, replicate, out)
    assert out.tolist() == whole.tolist()
    others = [
        coins.uniforms(seed ^ 1, coins.COIN, sequence, start, 8, replicate),
        coins.uniforms(seed, coins.TARGET, sequence, start, 8, replicate),
        coins.uniforms(seed, coins.COIN, sequence ^ 1, start, 8, replicate),
        coins.uniforms(seed, coins.COIN, sequence, start, 8, replicate ^ 1),
    ]
    assert all((other != whole).all() for other in others)


def test_coins_are_uniform():
    # chi-square over 64 cells, 63 degrees of freedom: 131 is passed by chance once in about 1e-6 (fixed seed)
    values = np.concatenate([coins.uniforms(7, coins.COIN, s, 0, 1000) for s in range(200)])
    counts = np.bincount((values * 64).astype(int), minlength=64)
    assert ((counts - 3125) ** 2 / 3125).sum() < 131
    # neighbours in position and in sequence: correlations of 2e5 pairs, 5 standard errors (one in 1.7e6)
    grid = values.reshape(200, 1000) - 0.5
    for a, b in ((grid[:, 1:], grid[:, :-1]), (grid[1:], grid[:-1])):
        assert abs((a * b).mean() * 12) < 5 / math.sqrt(a.size)


@pytest.mark.parametrize("bad", [{"seed": -1}, {"seed": 2**56}, {"start": 2**32}, {"sequence": -2}, {"stream": 256}])
def test_coins_refuse_places_that_would_collide(bad):
    place = {"seed": 0, "stream": 0, "sequence": 0, "start": 0, "count": 1}
    with pytest.raises(ValueError, match=next(iter(bad))):
        coins.uniforms(**{**place, **bad})


@pytest.mark.parametrize("shape", [(3, 2, 40), (3, 2, 0), (0, 2, 5)])
def test_asking_for_memory_changes_nothing(shape):
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    before = values.copy()
    for row in (0, 2, 3, 10**9):  # also rows that there are not
        assert fetch_row(values, row) is None
        assert uncompiled(fetch_row)(values, row) is None
    np.testing.assert_array_equal(values, before)
