"""What is wrong with a selector, and where."""

_SHOWN = 60  # characters of a long line, so that the caret is beside what it points at


class SelectorError(ValueError):
    """A selector that means nothing. Its text tells the place, the reason, and draws a caret under the place.

    line 1, column 12: expected a value, found the end
      priority >
                ^
    """

    def __init__(self, text: str, at: int, reason: str) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        self.reason = reason
        super().__init__(f"{self.brief}\n{_drawing(text, at, self.column)}")

    @property
    def brief(self) -> str:
        """The place and the reason, in one line."""
        return f"line {self.line}, column {self.column}: {self.reason}"


def _drawing(text: str, at: int, column: int) -> str:
    start = at - column + 1
    end = text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)]
    skipped = max(0, column - 1 - _SHOWN // 2)
    shown = "".join(each if each.isprintable() else " " for each in line[skipped:][:_SHOWN])
    return f"  {shown}\n  {' ' * (column - 1 - skipped)}^"
