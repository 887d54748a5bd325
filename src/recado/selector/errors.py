"""The error for invalid selectors, with the position in the text."""

_SHOWN_CHARACTER_COUNT = 60  # of a long line around the caret


class SelectorError(ValueError):
    """An invalid selector. The text of the error has the position, the reason, and a caret under the position.

    line 1, column 11: expected a value, found the end
      priority >
                ^
    """

    def __init__(self, text: str, offset: int, reason: str) -> None:
        before = text[:offset]
        self.line = before.count("\n") + 1
        self.column = offset - (before.rfind("\n") + 1) + 1
        self.reason = reason
        super().__init__(f"{self.summary}\n{_draw_caret(text, offset, self.column)}")

    @property
    def summary(self) -> str:
        """The position and the reason, in one line."""
        return f"line {self.line}, column {self.column}: {self.reason}"


def _draw_caret(text: str, offset: int, column: int) -> str:
    start = offset - column + 1
    end = text.find("\n", offset)
    line = text[start : end if end >= 0 else len(text)]
    skipped = max(0, column - 1 - _SHOWN_CHARACTER_COUNT // 2)
    shown = "".join(
        each if each.isprintable() else " " for each in line[skipped:][:_SHOWN_CHARACTER_COUNT]
    )
    return f"  {shown}\n  {' ' * (column - 1 - skipped)}^"
