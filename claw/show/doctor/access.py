"""The part of `claw doctor` about who may read and write: the
wire to the broker, and its access lists."""

from collections.abc import Iterator, Mapping, Sequence

from claw_r1.claw.show.doctor.findings import Finding, checked, error, ok, warning
from claw_r1.eventlog.errors import AccessRefused
from claw_r1.eventlog.grants import ROLES, Grant, beyond, grants, touching
from claw_r1.eventlog.kafka.acls import check_access, held_grants
from claw_r1.eventlog.kafka.admin import broker_settings
from claw_r1.eventlog.security import elsewhere
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Catalogue

USERS = {f"claw-{role}": role for role in ROLES}
LISTS = "`claw topics acls --apply`; for Strimzi's users `claw topics manifests --kind KafkaUser`, and apply that"
"""Both ways in which they are written."""


def access_findings(settings: LogSettings) -> Iterator[Finding]:
    """Nothing on a wire that nobody secured, which `wire` says."""
    if settings.secured:
        yield from checked("access", lambda: own_access(settings))
        yield from checked("grants", lambda: _grants(settings))


def wire(servers: str, *, secured: bool) -> Finding:
    """Finds out whether the network can read along."""
    others = elsewhere(servers)
    if secured or not others:
        return ok("secured" if secured else "on this machine alone")
    return warning(
        f"{', '.join(others)} takes everybody, in clear: its network reads all",
        "set CLAW_LOG_SECURITY_PROTOCOL=SASL_SSL (docs/security.md)",
    )


def own_access(settings: LogSettings) -> Finding:
    """Finds out whether this user may do what `claw` does."""
    try:
        check_access(settings, "operator")
    except AccessRefused as refused:
        return error(str(refused), LISTS)
    return ok("as the operator needs it")


def _grants(settings: LogSettings) -> Finding:
    # Refuses who may not look: to them the lists only seem empty.
    lists = broker_settings(settings).get("authorizer.class.name")
    return grants_held(settings.catalogue(), held_grants(settings) if lists else None)


def grants_held(catalogue: Catalogue, held: Mapping[str, Sequence[Grant]] | None) -> Finding:
    """Finds out whether the users of roles, and everybody, have
    what they need and no more. held: by user; None without lists."""
    if held is None:
        return warning("no access lists: each user may do all", "set authorizer.class.name")
    missing, wide = list[str](), list[str]()
    for user in (USERS.keys() | {"*"}) & held.keys():
        needed = grants(catalogue, USERS[user]) if user in USERS else []
        missing += [f"{user}: {grant}" for grant in beyond(needed, held[user])]
        ours = touching(catalogue, held[user])
        wide += [f"{user}: {grant}" for grant in beyond(ours, needed)]
    if missing:
        says = f"{len(missing)} missing, such as {min(missing)}"
        return error(says, LISTS)
    if wide:
        unknown = "what `claw topics acls` does not name"
        says = f"{len(wide)} too wide, such as {min(wide)}"
        return warning(says, f"`claw broker tool acls --remove` {unknown}")
    return ok("each role has what it needs, and no more")
