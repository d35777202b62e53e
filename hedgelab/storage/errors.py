"""The errors that callers may want to catch by name."""

from __future__ import annotations

__all__ = ["TraceError"]


class TraceError(ValueError):
    """A trace that can't be read, written or made; carries every problem found, each with its place.

    >>> error = TraceError("manifest.k: is 0; at least 1", "manifest.seed: missing")
    >>> error.problems
    ('manifest.k: is 0; at least 1', 'manifest.seed: missing')
    >>> print(error)
    manifest.k: is 0; at least 1
    manifest.seed: missing
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)  # as args, so that the error survives the way back from a worker process

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem, one string each."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(self.args)
