"""The grants that the user of each room needs on Kafka, by the catalogue:
least privilege. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from claw_r1.schemas.topics import WORKERS, Catalogue

Operation = Literal["read", "write", "describe", "describe_configs", "create", "delete", "alter", "all"]
Resource = Literal["topic", "group", "transactional_id"]
ROLES: Mapping[str, frozenset[str]] = {
    "gateway": frozenset({"gateway"}),
    "streams": frozenset({"streams", "reactors"}),
    "trainer": frozenset({"trainer", "the run's trainer"}),
    "rollout": frozenset({"rollout", "rollout supervisors"}),
    "rewards": frozenset({"rewards"}),
    "quality": frozenset({"quality"}),
    "dashboard": frozenset({"dashboard", "lineage", "runs"}),
    "export": frozenset({"export"}),
    "operator": frozenset({"operator", "claw", "lineage", "verify", "runs"}),
}
"""Role, which has a user of its own -> the words by which the catalogue
names what runs under it."""
SEES = ("read", "write", "delete", "alter")
"""Operations whose grant includes to describe."""
READS_FACTS = frozenset({"streams", "rewards", "quality"})
"""The roles that put what they cannot read into the dead letters."""


class Grant(NamedTuple):
    """One line of an access control list."""

    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False
    """The name is what the names of the resources begin with."""

    def __str__(self) -> str:
        return f"{self.operation} {self.resource.replace('_', ' ')} {self.name}{'*' if self.prefixed else ''}"


def grants(catalogue: Catalogue, role: str) -> list[Grant]:
    """Returns what a role needs; reading and writing a topic includes to see it. Raises KeyError for no role."""
    names = ROLES[role]
    return [
        *dict.fromkeys((*_topics(catalogue, role, names), *_groups(catalogue, role), *_transactions(catalogue, role)))
    ]


def beyond(some: Iterable[Grant], others: Sequence[Grant]) -> list[Grant]:
    """Returns those of some grants that the others do not give."""
    return [grant for grant in some if not any(_gives(other, grant) for other in others)]


def touching(catalogue: Catalogue, held: Iterable[Grant]) -> list[Grant]:
    """Returns the grants on topics of the catalogue."""
    names = [catalogue.name(topic) for topic in catalogue]
    return [grant for grant in held if grant.resource == "topic" and any(_includes(grant, name) for name in names)]


def _includes(grant: Grant, name: str) -> bool:
    if grant.prefixed:
        return name.startswith(grant.name)
    return grant.name in (name, "*")


def _gives(held: Grant, needed: Grant) -> bool:
    """Returns whether one gives another."""
    seen = needed.operation == "describe" and held.operation in SEES
    same = seen or held.operation in (needed.operation, "all")
    wide = held.prefixed or held.name == "*" or not needed.prefixed
    return held.resource == needed.resource and same and wide and _includes(held, needed.name)


def _topics(catalogue: Catalogue, role: str, names: frozenset[str]) -> Iterator[Grant]:
    for topic in catalogue:
        full = catalogue.name(topic)
        yield Grant("topic", full, "describe")
        if names & {reader.partition(" (")[0] for reader in topic.readers}:
            yield Grant("topic", full, "read")
        if role == "operator":
            yield from (Grant("topic", full, operation) for operation in ("create", "describe_configs", "delete"))
        copies = role == "operator" and topic.name != WORKERS.name  # a rebuild writes the pool, and a copy the rest
        if copies or names & set(topic.writers) or (not topic.records and role in READS_FACTS):
            yield Grant("topic", full, "write")


def _groups(catalogue: Catalogue, role: str) -> Iterator[Grant]:
    """A consumer group is one's own to read by; what shows how far others are may look at all of the installation."""
    yield Grant("group", catalogue.readers_group, "describe")
    if role == "streams":
        yield Grant("group", catalogue.streams_group, "read")
    if role == "gateway":  # what an order has had is in the pool, or lies behind what streams committed
        yield Grant("group", catalogue.streams_group, "describe")
    if role in ("rewards", "quality"):
        yield Grant("group", f"{catalogue.prefix}.{role}", "read", prefixed=True)
    if role in ("operator", "dashboard"):
        yield Grant("group", f"{catalogue.prefix}.", "describe", prefixed=True)
    if role == "operator":
        yield Grant("group", f"{catalogue.prefix}.", "read", prefixed=True)


def _transactions(catalogue: Catalogue, role: str) -> Iterator[Grant]:
    stems = {
        "streams": f"{catalogue.streams_group}-",
        "trainer": f"{catalogue.prefix}.trainer.",
        "rewards": f"{catalogue.prefix}.rewards.",
    }
    if stem := stems.get(role):
        yield Grant("transactional_id", stem, "write", prefixed=True)
    if role == "operator":  # as streams in a rebuild, as a scorer in a backfill, and a copy's own
        for stem in (f"{catalogue.streams_group}-", f"{catalogue.prefix}.rewards.", f"{catalogue.prefix}.copy."):
            yield Grant("transactional_id", stem, "write", prefixed=True)
