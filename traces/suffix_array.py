"""A suffix array over token ids: every place of a text store, in the order of what stands behind it.

Places whose next n tokens are one pattern lie side by side, so that a pattern is a span of the array, a longer pattern
a span within it, and what followed the pattern stands there in order. Source: Manber and Myers 1993, "Suffix arrays: a
new method for on-line string searches" (order by prefix doubling); only groups that are not yet in order are sorted
again, as in Larsson and Sadakane 2007, "Faster suffix sorting".

Texts stand one behind the other with END behind each. END is no token, smaller than all, and where a suffix ends: none
reaches into the next text. Measured on one core: 10^7 tokens with the frequencies of words take 7 CPU-seconds, four
copies of every text 16, a single token repeated 19, and at most 0.8 GB; 80 MB stay.
"""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["END", "Matcher", "SuffixArray", "suffix_order"]

END = -1  # behind every text; no id

Span = tuple[int, int]  # first and last + 1 of the places in the array


def suffix_order(token: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return all n places of `token` (n,) in the order of their suffixes, each up to its END; equal ones by place.

    token : ids of at least 0, END behind each text, so also last. Raises ValueError if it is not, or n >= 2^31.

    >>> suffix_order(np.array([5, 3, 5, END, 3, END], np.int32)).tolist()
    [3, 5, 4, 1, 2, 0]
    """
    count = len(token)
    if count >= 2**31:
        raise ValueError(f"{count} tokens; allowed: fewer than 2^31")
    if count == 0:
        return np.zeros(0, np.int32)
    if token[-1] != END or token.min() < END:
        raise ValueError(f"ids must be at least 0, with {END} behind every text")
    ends = np.flatnonzero(token == END)
    left = (np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(count)).astype(np.int32)  # tokens before the END
    bits = max(1, (int(token.max()) + 1).bit_length())
    known = max(1, 62 // bits)  # so many tokens fit one key
    key = np.zeros(count, np.int64)
    for ahead in range(min(known, count)):
        key <<= bits
        key[: count - ahead] |= np.where(left[: count - ahead] > ahead, token[ahead:].astype(np.int64) + 1, 0)
    order = np.argsort(key, kind="stable").astype(np.int32)
    rank = np.empty(count, np.int64)  # of a place: where in the order its group of so far equal ones begins
    places = np.arange(count)  # of the order that are not settled: whole groups
    key = key[order]
    while True:
        begins = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
        size = np.diff(begins, append=len(key))
        rank[order[places]] = np.repeat(places[begins], size)
        # equal suffixes that ended are equal for good
        open_ = np.repeat(size > 1, size) & (left[order[places]] >= known)
        places = places[open_]
        if not len(places):
            return order
        members = order[places]
        key = rank[members] * count + rank[members + known]
        by_key = np.argsort(key, kind="stable")
        key, order[places] = key[by_key], members[by_key]
        known *= 2


class SuffixArray:
    """Texts with the order of their suffixes.

    token : (n,) int32, END behind every text. order : (n,) int32, see `suffix_order`

    >>> array = SuffixArray([[7, 8, 9], [7, 8, 4]])
    >>> span = array.narrow(array.narrow(array.whole, 0, 7), 1, 8)
    >>> array.behind(span, length=2, depth=2, matches=9).tolist()
    [[4, -1], [9, -1]]
    """

    def __init__(self, texts: Sequence[NDArray[np.integer] | Sequence[int]]) -> None:
        pieces = [piece for text in texts if len(text) for piece in (np.asarray(text, np.int32), _END)]
        self.token = np.concatenate([*pieces, np.zeros(0, np.int32)])
        self.order = suffix_order(self.token)
        # an element of a memoryview costs half of an array's
        self._token, self._order = self.token.data, self.order.data
        self.whole: Span = (len(pieces) // 2, len(self.token))  # END alone comes first

    def narrow(self, span: Span, length: int, token: int) -> Span:
        """Return the span of a pattern and a further token from the `span` of the pattern, of `length` tokens."""
        tokens = self._token

        def next_token(place: int) -> int:
            return tokens[place + length]

        first = bisect_left(self._order, token, *span, key=next_token)
        return first, bisect_right(self._order, token, first, span[1], key=next_token)

    def behind(self, span: Span, length: int, depth: int, matches: int) -> NDArray[np.int32]:
        """Return what stands behind a pattern, (m, depth) in ascending order, END from a text's end on.

        m : all the pattern's places, or of more than `matches` so many: each (i size // matches)-th of its span, evenly
            spaced in the order of what follows them, so that every continuation keeps its share up to one place
        """
        size = span[1] - span[0]
        if size > matches:
            place = self.order[span[0] + np.arange(matches) * size // matches]
        else:
            place = self.order[span[0] : span[1]]
        at = place[:, None] + (length + np.arange(depth))
        found = self.token.take(at, mode="clip")  # the last one is an END
        return np.where(np.logical_or.accumulate(found == END, axis=1), END, found)


_END = np.array([END], np.int32)


class Matcher:
    """The longest suffixes of one growing text that a suffix array holds: a token costs O(longest log n).

    spans : spans[n] is that of the last n tokens, for n from 0 to the length of the longest match, at most `longest`
    """

    def __init__(self, array: SuffixArray, longest: int, tokens: Sequence[int]) -> None:
        self._array, self._longest = array, longest
        self.spans: list[Span] = [array.whole]
        for token in tokens[-longest:]:
            self.append(token)

    def append(self, token: int) -> None:
        """Add a token to the text."""
        spans = [self._array.whole]
        for length, span in enumerate(self.spans[: self._longest]):
            first, end = self._array.narrow(span, length, token)
            if first == end:
                break  # nor does any longer suffix occur
            spans.append((first, end))
        self.spans = spans

    def extended(self, token: int) -> Matcher:
        """Return the matcher of the text with a further token; this one stays as it is."""
        longer = copy.copy(self)  # its spans are replaced, not changed
        longer.append(token)
        return longer
