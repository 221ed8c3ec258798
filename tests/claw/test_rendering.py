"""Events for people and for JSON readers."""

from claw_r1.claw.rendering import one_line
from tests.claw.events import captured


def test_a_call_on_one_line_tells_its_versions() -> None:
    """The line of a call names tokens and versions."""
    line = one_line(captured())
    assert line.startswith("CallCaptured")
    assert "tokens=2+1" in line
    assert "versions=r/3[0:1]" in line
