"""The findings of a verification: every offender by kind of finding, and what was looked at."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """`counts`: the items checked, so that an empty log is not taken for a good one.

    `findings`: all ids that break a promise, by kind: a repair needs every one.
    """

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every promise holds."""
        return not self.findings

    def found(self, kind: str, offender: str) -> None:
        """One more offender."""
        self.findings.setdefault(kind, []).append(offender)

    def to_json(self) -> dict[str, object]:
        """`{"ok", "counts", "findings": {kind: {"count", "ids"}}}`."""
        findings = {kind: {"count": len(ids), "ids": ids} for kind, ids in sorted(self.findings.items())}
        return {"ok": self.ok, "counts": dict(sorted(self.counts.items())), "findings": findings}
