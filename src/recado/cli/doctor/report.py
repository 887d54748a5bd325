"""The output of findings: a table in a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Final

from recado.cli.management.output import Form, Output, plural
from recado.cli.terminal import Colour, escape_unprintable, width_of

from .diagnosis import Finding, Severity

COLOURS: Final = {
    Severity.OK: Colour.GREEN,
    Severity.WARNING: Colour.YELLOW,
    Severity.ERROR: Colour.RED,
}
SEVERITY_WIDTH_COUNT: Final = 9
CHECK_WIDTH_COUNT: Final = 15
INDENT: Final = " " * (SEVERITY_WIDTH_COUNT + CHECK_WIDTH_COUNT)
TEXT_WIDTH_MIN_COUNT: Final = 40


class FindingPrinter:
    """Prints each finding as soon as it is added, and a summary at the end; JSON is printed at the end as a whole."""

    def __init__(self, *, as_json: bool) -> None:
        self._output = Output(Form.JSON if as_json else None)
        self._width = max(width_of(sys.stdout) - len(INDENT), TEXT_WIDTH_MIN_COUNT)
        self._findings: list[Finding] = []
        self.counts: Counter[Severity] = Counter()

    def add(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        match self._output.form:
            case Form.JSON:
                self._findings.append(finding)
            case Form.PLAIN:
                cells = (finding.severity.value, finding.check, finding.found, finding.reason)
                self._output.line("\t".join(map(_escape, (*cells, *finding.fixes))))
            case Form.TABLE:
                for line in self._render(finding):
                    self._output.line(line)
                sys.stdout.flush()

    def end(self) -> None:
        errors, warnings = self.counts[Severity.ERROR], self.counts[Severity.WARNING]
        match self._output.form:
            case Form.JSON:
                findings = [finding._asdict() for finding in self._findings]
                self._output.json({"errors": errors, "warnings": warnings, "findings": findings})
            case Form.TABLE:
                summary = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
                colour = COLOURS[max(self.counts, key=list(Severity).index)]
                self._output.line(f"\n{self._output.paint(summary, colour)}")
            case Form.PLAIN:
                pass

    def _render(self, finding: Finding) -> Iterator[str]:
        """Yield the lines of a finding; commands are never wrapped, so that they can be copied."""
        severity = f"{finding.severity.value:{SEVERITY_WIDTH_COUNT}}"
        start = self._output.paint(severity, COLOURS[finding.severity])
        start += f"{finding.check:{CHECK_WIDTH_COUNT}}"
        for line in self._wrap(finding.found):
            yield f"{start}{line}"
            start = INDENT
        if finding.severity is Severity.OK:
            return
        for line in self._wrap(finding.reason):
            yield f"{INDENT}{self._output.paint(line, Colour.DIM)}"
        for number, fix in enumerate(finding.fixes):
            yield f"{INDENT}{'or: ' if number else 'fix:'} {_escape(fix)}"

    def _wrap(self, text: str) -> list[str]:
        return textwrap.wrap(_escape(text), self._width, break_on_hyphens=False)


def _escape(text: str) -> str:
    return escape_unprintable(text.replace("\t", "\\t"))
