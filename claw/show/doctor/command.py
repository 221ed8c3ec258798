"""All checks of `claw doctor` in one answer."""

from claw_r1.claw.answers import Answer
from claw_r1.claw.show.doctor.log import log_findings
from claw_r1.claw.show.doctor.machine import machine_findings


def run_doctor(*, prefix: str) -> Answer:
    """Checks everything; exit code 1 when one is an error."""
    findings = [*machine_findings(), *log_findings(prefix)]
    sound = all(each.severity != "error" for each in findings)
    value = {"ok": sound, "findings": findings}
    return Answer(value, map(str, findings), 0 if sound else 1)
