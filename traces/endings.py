"""When a text ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["Ending"]


class Ending:
    """Looks at a text token by token and says why it ends.

    prompt : tokens of the prompt. eos : ids that end a text. limit : most tokens written. context : most tokens of
    prompt and text together. loop : a text ends where its last `loop` tokens have occurred in it before, 0 for never

    >>> ending = Ending(3, eos=(0,), limit=9, context=100, loop=2)
    >>> [ending.after([5, 6, 5, 6][:n]) for n in (1, 2, 3, 4)]
    ['', '', '', 'loop']
    """

    def __init__(self, prompt: int, eos: Collection[int], limit: int, context: int, loop: int = 0) -> None:
        self._prompt, self._eos, self._limit, self._context, self._loop = prompt, eos, limit, context, loop
        self._grams: set[tuple[int, ...]] = set()

    def after(self, text: Sequence[int]) -> str:
        """Return why a text ends with its latest token, as `hedgelab.storage.columns.STOPS` names it, or "".

        Called once a token, in order.
        """
        n = self._loop
        if n and len(text) >= n:
            gram = tuple(text[-n:])
            if gram in self._grams:
                # The repeated rows stay. Cutting where they begin would look n tokens ahead: the text would
                # no longer be a sample of p, and drafters that copy would seem worse than they are.
                return "loop"
            self._grams.add(gram)
        if text[-1] in self._eos:
            return "eos"
        if len(text) == self._limit:
            return "length"
        return "context" if self._prompt + len(text) == self._context else ""

    def room(self, written: int) -> int:
        """Return how many more tokens a text of so many can get at most."""
        return min(self._limit, self._context - self._prompt) - written
