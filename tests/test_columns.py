import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hedgelab.storage.columns import COLUMNS, ENCODED, decode, encode, shape_of, stored_as

shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6)
unit = st.floats(0, 1, width=32) | st.sampled_from([0.0, 1.0, float("nan")])


@given(hnp.arrays(np.float32, shapes, elements=unit))
def test_fixed16_round_trip(values):
    stored = encode(values, "fixed16")
    again = decode(stored, "fixed16", values.shape)
    assert stored.dtype == np.uint16
    assert again.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(again), np.isnan(values))
    known = ~np.isnan(values)
    assert np.abs(again[known].astype(float) - values[known]).max(initial=0) <= 7.7e-6
    np.testing.assert_array_equal(again[(values == 0) | (values == 1)], values[(values == 0) | (values == 1)])


def test_every_fixed16_code_means_one_value():
    codes = np.arange(65536, dtype=np.uint16)
    values = decode(codes, "fixed16", codes.shape)
    np.testing.assert_array_equal(encode(values, "fixed16"), codes)
    np.testing.assert_array_equal(values[:-1], (np.arange(65535) / 65534).astype(np.float32))
    assert values[0] == 0
    assert values[32767] == 0.5
    assert values[65534] == 1
    assert math.isnan(values[65535])


@given(hnp.arrays(np.float32, shapes, elements=st.sampled_from([0.0, 1.0])))
def test_bits_round_trip(values):
    stored = encode(values, "bits")
    assert stored.dtype == np.uint8
    assert stored.shape == ((values.size + 7) // 8,)
    np.testing.assert_array_equal(decode(stored, "bits", values.shape), values)


@given(hnp.arrays(np.float32, shapes, elements=unit))
def test_deflate_holds_what_fixed16_holds(values):
    stored = encode(values, "deflate")
    assert stored.dtype == np.uint8
    again, expected = (
        decode(stored, "deflate", values.shape),
        decode(encode(values, "fixed16"), "fixed16", values.shape),
    )
    assert again.dtype == np.float32
    assert again.flags.c_contiguous
    assert not again.flags.writeable
    np.testing.assert_array_equal(again, expected)


@given(hnp.arrays(np.int16, shapes))
def test_deflate_holds_int16(values):
    again = decode(encode(values, "deflate"), "deflate", values.shape, "<i2")
    assert again.dtype == np.int16
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("rows", [2047, 2048, 2049, 5000])
def test_deflate_holds_more_rows_than_are_inflated_at_a_time(rows):
    codes = np.random.default_rng(rows).integers(0, 65536, (rows, 2, 3)).astype(np.uint16)
    values = decode(codes, "fixed16", codes.shape)
    np.testing.assert_array_equal(decode(encode(values, "deflate"), "deflate", values.shape), values)


def test_damaged_deflated_bytes_are_refused():
    stored = encode(np.linspace(0, 1, 60, dtype=np.float32).reshape(20, 3), "deflate")
    for bad in (stored[:-1], np.append(stored, np.uint8(0)), stored[::-1], stored[:0]):
        with pytest.raises(ValueError, match="inflate"):
            decode(bad, "deflate", (20, 3))
    for shape in ((20, 2), (20, 4), (0, 3)):
        with pytest.raises(ValueError, match="does not inflate to"):
            decode(stored, "deflate", shape)


@given(hnp.arrays(np.float32, shapes, elements=st.floats(width=32)))
def test_float32_is_the_array_itself(values):
    stored = encode(values, "float32")
    assert stored is values
    assert decode(stored, "float32", values.shape) is values


@pytest.mark.parametrize("encoding", ["fixed16", "bits", "deflate"])
@pytest.mark.parametrize("bad", [np.nextafter(np.float32(1), np.float32(2)), -1e-30, np.inf, -np.inf, 2.0])
def test_values_that_an_encoding_cannot_hold_are_named(encoding, bad):
    values = np.zeros((2, 3), np.float32)
    values[1, 2] = bad
    with pytest.raises(ValueError, match=rf"{encoding.replace('deflate', 'fixed16')} holds .* at \[1, 2\]"):
        encode(values, encoding)


@pytest.mark.parametrize("bad", [0.5, np.nan])
def test_bits_hold_nothing_between_and_no_nan(bad):
    with pytest.raises(ValueError, match=r"bits holds 0 or 1, not .* at \[1\]"):
        encode(np.array([0, bad], np.float32), "bits")


def test_unknown_encoding_is_refused():
    with pytest.raises(ValueError, match="'float8' is none of float32, fixed16, bits, deflate"):
        encode(np.zeros(1, np.float32), "float8")


@pytest.mark.parametrize("encoding", ["float32", "fixed16", "bits", "deflate"])
@pytest.mark.parametrize("name", ENCODED)
def test_stored_as_says_what_encode_makes(name, encoding):
    sizes = {"T": 5, "k": 3, "N": 3, "N1": 2, "N2": 1}
    shape = shape_of(COLUMNS[name], sizes)
    stored = encode(np.ones(shape, np.float32), encoding)
    dtype, stored_shape = stored_as(COLUMNS[name], encoding, shape)
    assert stored.dtype == dtype
    assert stored.shape == stored_shape or (stored_shape is None and stored.ndim == 1)


def test_decoded_arrays_are_read_only():
    for encoding in ("fixed16", "bits"):
        assert not decode(encode(np.ones(3, np.float32), encoding), encoding, (3,)).flags.writeable
