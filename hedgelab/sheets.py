"""Tables of text, for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Cell", "Sheet"]


class Cell(NamedTuple):
    """Text, and whether it is bold and underlined (in Markdown: bold and italic)."""

    text: str
    bold: bool = False
    underline: bool = False

    @property
    def markdown(self) -> str:
        """The text with its marks.

        >>> Cell("1.5", bold=True).markdown, Cell("a | b", underline=True).markdown
        ('**1.5**', '_a \\\\| b_')
        """
        text = self.text.replace("|", "\\|")
        text = f"_{text}_" if self.underline else text
        return f"**{text}**" if self.bold else text


class Sheet(NamedTuple):
    """A table: its title (may be ""), a heading for each column, rows of cells. `left` columns are words."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    left: int = 1

    def cells(self) -> list[list[Cell]]:
        """Return the rows with every entry a Cell."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def markdown(self) -> list[str]:
        """Return the lines of the table in Markdown, the title and a colon above it.

        >>> print("\\n".join(Sheet("MAT", ["drafter", "sql"], [["ngram", Cell("1.5", bold=True)]]).markdown()))
        MAT:
        <BLANKLINE>
        | drafter | sql |
        | --- | ---: |
        | ngram | **1.5** |
        """
        rules = ["---"] * self.left + ["---:"] * (len(self.header) - self.left)
        body = [[cell.markdown for cell in row] for row in self.cells()]
        lines = ["| " + " | ".join(row) + " |" for row in (list(self.header), rules, *body)]
        return [f"{self.title}:", "", *lines] if self.title else lines
