"""The exponential that all kernels share: vectorises, and gives the same bits compiled and as plain Python."""

from __future__ import annotations

import math

from numba import types
from numba.extending import intrinsic

from hedgelab._jit import kernel, plain

__all__ = ["vexp"]

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts: k * high is exact for |k| < 2^20
_LN2_LOW = 1.90821492927058770002e-10
# degree-11 Chebyshev interpolant of exp on |r| <= ln(2)/2, computed with 50 digits
_C0 = 1.0
_C1 = 1.0
_C2 = 0.5000000000000019
_C3 = 0.1666666666666668
_C4 = 0.04166666666648809
_C5 = 0.008333333333319601
_C6 = 0.0013888888952314812
_C7 = 0.00019841269890047143
_C8 = 2.480148548228773e-05
_C9 = 2.7557240918547625e-06
_C10 = 2.763263965412376e-07
_C11 = 2.511003761756205e-08
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which then fills the low mantissa bits


def _power_of_two_plain(shifted):
    return math.ldexp(1.0, int(shifted - _ROUND))


@plain(_power_of_two_plain)
@intrinsic
def _power_of_two(typing_context, shifted):
    """2^k for shifted = k + 1.5 * 2^52, by moving k into the exponent bits; k in [-1022, 1023]."""

    def codegen(context, builder, signature, arguments):
        word = context.get_value_type(types.int64)
        bits = builder.bitcast(arguments[0], word)
        biased = builder.add(bits, word(1023))
        return builder.bitcast(builder.shl(biased, word(52)), context.get_value_type(types.float64))

    return types.float64(types.float64), codegen


@kernel
def vexp(x):
    """Return exp(x) within 1.5e-16 + one rounding, for float64 x; 0 at x <= -708, exp(709) above 709.

    Argument reduction x = k ln 2 + r, |r| <= ln(2)/2, and a degree-11 polynomial in r (Chebyshev interpolation in
    extended precision). No branch and no call, so a loop over it becomes SIMD code.

    >>> vexp(1.0)
    2.7182818284590455
    """
    clipped = min(max(x, -708.0), 709.0)
    shifted = clipped * _LOG2E + _ROUND
    k = shifted - _ROUND
    r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    p = _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r + _C1
    p = p * r + _C0
    value = p * _power_of_two(shifted)
    return value if x > -708.0 else 0.0
