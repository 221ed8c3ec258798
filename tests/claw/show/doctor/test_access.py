"""Who may read along, and whose access lists say more or less than the catalogue."""

import pytest

from claw_r1.claw.show.doctor.access import grants_held, wire
from claw_r1.eventlog.grants import Grant, grants
from claw_r1.schemas.topics import Catalogue


@pytest.mark.parametrize(
    ("servers", "secured", "found"),
    [
        ("127.0.0.1:9092", False, "ok"),
        ("localhost:1,[::1]:2", False, "ok"),
        ("kafka.example:9092", True, "ok"),
        ("127.0.0.1:1,kafka.example:9092", False, "warning"),
    ],
)
def test_a_broker_beyond_this_machine_in_clear_is_said(servers: str, secured: bool, found: str) -> None:
    """One of several is enough, and it is named with the setting that secures it."""
    finding = wire(servers, secured=secured)
    assert finding.severity == found
    assert found == "ok" or ("kafka.example" in finding.says and "SASL_SSL" in finding.remedy)


CATALOGUE = Catalogue(prefix="claw")


def test_users_with_the_grants_of_their_role_are_sound() -> None:
    """Nobody judges a role without a user, a user of no role, or topics of another installation."""
    other = Grant("topic", "elsewhere", "all")
    held = {f"claw-{role}": [*grants(CATALOGUE, role), other] for role in ("gateway", "operator")}
    assert grants_held(CATALOGUE, {**held, "admin": [Grant("topic", "*", "all")]}).severity == "ok"


def test_a_grant_that_is_missing_is_an_error_and_named() -> None:
    """The room would end at its start; a wider grant gives it as well."""
    needed = grants(CATALOGUE, "gateway")
    less = [grant for grant in needed if grant != Grant("topic", "claw.calls", "write")]
    finding = grants_held(CATALOGUE, {"claw-gateway": less})
    assert (finding.severity, "claw-gateway: write topic claw.calls" in finding.says) == ("error", True)
    finding = grants_held(CATALOGUE, {"claw-gateway": [*less, Grant("topic", "claw.c", "all", prefixed=True)]})
    assert (finding.severity, "all topic claw.c*" in finding.says) == ("warning", True)


@pytest.mark.parametrize("user", ["*", "claw-rollout"])
@pytest.mark.parametrize("grant", [Grant("topic", "*", "read"), Grant("topic", "claw.training.batches", "write")])
def test_a_grant_that_no_role_needs_is_a_warning(user: str, grant: Grant) -> None:
    """Everybody needs none at all."""
    finding = grants_held(CATALOGUE, {user: [*(grants(CATALOGUE, "rollout") if user != "*" else []), grant]})
    assert (finding.severity, f"{user}: {grant}" in finding.says) == ("warning", True)


def test_a_broker_without_access_lists_is_said() -> None:
    """Passwords alone part no roles."""
    finding = grants_held(CATALOGUE, None)
    assert (finding.severity, "authorizer.class.name" in finding.remedy) == ("warning", True)
