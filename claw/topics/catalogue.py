"""The catalogue against the broker."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.claw.topics.commands import CatalogueOptions
from claw_r1.claw.topics.manifests import KINDS, as_yaml, manifests
from claw_r1.eventlog.grants import ROLES, grants
from claw_r1.eventlog.kafka.acls import allow
from claw_r1.eventlog.kafka.admin import TopicState, create_topics, describe_topics, diff_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Catalogue


def on_broker(options: CatalogueOptions, action: Callable[[LogSettings], Answer]) -> Answer:
    """Carries it out with the settings of a broker that answers."""
    with log_for_reading(options.prefix) as settings:
        return action(settings.model_copy(update=asdict(options)))


def create(settings: LogSettings) -> Answer:
    created = create_topics(settings)
    return Answer({"created": created}, created or "every topic exists")


def describe(settings: LogSettings) -> Answer:
    states = describe_topics(settings)
    if not states:
        notice(
            f"the broker has no topic with the prefix {settings.prefix}: name another --prefix, or `claw topics create`"
        )
    return Answer(states, _table(settings.catalogue(), states))


def _table(catalogue: Catalogue, states: Iterable[TopicState]) -> Iterator[str]:
    yield f"{'topic':<32} {'key':<36} {'policy':<8} {'partitions':>10} {'replicas':>8} {'records':>9}"
    for state in states:
        topic = catalogue.topic(state.name)
        yield (
            f"{state.name:<32} {topic.key:<36} {topic.policy:<8} {state.partitions:>10} {state.replication:>8} {state.records:>9}"
        )


def diff(settings: LogSettings) -> Answer:
    differences = diff_topics(settings)
    text = differences or "the broker has what the catalogue asks for"
    return Answer({"differences": differences}, text, 1 if differences else 0)


def acls(options: CatalogueOptions, *, users: str, apply: bool) -> Answer:
    """Least privilege for a user of each role, whose name is `users` and the role's. Only to apply it needs a broker."""
    catalogue = LogSettings(**asdict(options)).catalogue()
    needed = {f"{users}{role}": grants(catalogue, role) for role in ROLES}
    if apply:
        with log_for_reading(options.prefix) as settings:
            allow(settings, needed)
    rows = [{"user": user, **grant._asdict()} for user, each in needed.items() for grant in each]
    return Answer(rows, [f"{user}: {grant}" for user, each in needed.items() for grant in each])


def strimzi(several: Sequence[CatalogueOptions], *, users: str, kind: str) -> Answer:
    """Cluster, topics and users of these catalogues as resources of Strimzi, all or those of one kind."""
    catalogues = [LogSettings(**asdict(options)).catalogue() for options in several]
    resources = [each for each in manifests(catalogues, users) if kind in ("", each["kind"])]
    if not resources:
        raise CannotRun(f"--kind {kind}: there are {', '.join(KINDS)}")
    return Answer(resources, as_yaml(resources).rstrip())
