"""A finding of `claw doctor`, and the rule by which a check
that fails is a finding, too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pydantic import ValidationError

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.errors import BrokerUnreachable, LogError

MAY_LOOK = "run it as a user who may look (Kafka: DescribeConfigs)"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check has one: `warning` is acceptable on a local
    stack, for example; at `error` something would not hold."""

    check: str
    severity: Literal["ok", "warning", "error"]
    says: str
    remedy: str = ""
    """The command or the setting that mends it."""

    def __str__(self) -> str:
        """A line for a person."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.severity:<8} {self.check:<12} {self.says}{remedy}"


ok = partial(Finding, "", "ok")
warning = partial(Finding, "", "warning")
error = partial(Finding, "", "error")


def checked(check: str, question: Callable[[], Finding], remedy: str = MAY_LOOK) -> Iterator[Finding]:
    """The finding by its name, or why there is none, so that the
    others go on. remedy: of a question without an answer.

    Raises BrokerUnreachable: each check would wait for it again.
    """
    try:
        finding = question()
    except BrokerUnreachable:
        raise
    except ValidationError as refused:
        says = f"its {refused.title} are refused"
        finding = error(says, "see docs/settings.md")
    except (CannotRun, LogError, OSError) as failure:
        finding = warning(f"not known: {failure}", remedy)
    yield replace(finding, check=check)
