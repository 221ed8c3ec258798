"""What a verification found: a count per kind of finding, and the first ids of each."""

from collections import Counter
from dataclasses import dataclass, field

IDS_MAX = 20
"""Ids that a finding lists; it counts all of them."""


@dataclass(slots=True)
class Finding:
    """One kind of broken promise."""

    count: int = 0
    ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """`counts`: what was looked at, so that an empty log is not taken for a good one. `findings` by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every promise holds."""
        return not self.findings

    def found(self, kind: str, offender: str) -> None:
        """One more offender."""
        finding = self.findings.setdefault(kind, Finding())
        finding.count += 1
        if len(finding.ids) < IDS_MAX:
            finding.ids.append(offender)

    def to_json(self) -> dict[str, object]:
        """`{"ok", "counts", "findings": {kind: {"count", "ids"}}}`."""
        findings = {kind: {"count": one.count, "ids": one.ids} for kind, one in sorted(self.findings.items())}
        return {"ok": self.ok, "counts": dict(sorted(self.counts.items())), "findings": findings}
