"""Ask the processor early for memory that a loop will read: nothing is computed, a result cannot change.

Losses read the blocks of deep drafters along a diagonal, row t + d at depth d, a few bytes from each of many lines. A
processor does not foresee that pattern and waits for every line; asked for whole rows some rows ahead, it does not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hedgelab._jit import kernel, plain

__all__ = ["fetch_row"]

_LINE = 16  # float32 values in 64 bytes


def _nothing(*arguments: Any) -> None:
    """What asking for memory means to plain Python."""


@plain(_nothing)
@intrinsic
def _fetch(typing_context, array, entry):
    """Ask for the line of the entry at this place of a C-contiguous array, to read it. No address is invalid."""

    def codegen(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        word = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
        builder.call(prefetch, [address, word(0), word(3), word(1)])  # read, keep in all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@plain(_nothing)
@kernel
def fetch_row(array, row):
    """Ask for row `row` of array (T, K, N) float32, if there is such a row."""
    if row < array.shape[0]:
        size = array.shape[1] * array.shape[2]
        for entry in range(row * size, (row + 1) * size, _LINE):
            _fetch(array, entry)
