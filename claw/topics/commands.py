"""The commands of `claw topics`. Each only hands its options to a function of this folder."""

import itertools
from dataclasses import dataclass
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, GenerationOption, Prefix

topics = Commands(
    name="topics",
    help="Create, describe and compare the topics of the catalogue, say what each room may do, copy a log.",
)
PartitionsOption = Annotated[int, typer.Option(envvar="CLAW_LOG_PARTITIONS", min=1, help="Partitions of every topic.")]
ReplicationOption = Annotated[
    int, typer.Option(envvar="CLAW_LOG_REPLICATION", min=1, help="Replicas; 3 outside the local stack.")
]
PrefixesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix",
        envvar="CLAW_LOG_PREFIX",
        help="Prefix of the topics, claw if not set; repeated, users may work on each.",
    ),
]
GenerationsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--generation",
        envvar="CLAW_LOG_GENERATION",
        min=1,
        help="Generation of the pool, 1 if not set; repeated, users may work on each.",
    ),
]
UsersOption = Annotated[str, typer.Option(help="Prefix of the users' names, before the role.")]
CopyPartitions = Annotated[int | None, typer.Option("--partitions", help="Partitions of the copy, if more than now.")]
CopyReplication = Annotated[int | None, typer.Option("--replication", help="Replicas of the copy; not set: as now.")]


@dataclass(frozen=True, slots=True)
class CatalogueOptions:
    """The catalogue that is meant."""

    prefix: Prefix = "claw"
    partitions: PartitionsOption = 32
    replication: ReplicationOption = 1
    generation: GenerationOption = 1


@topics.command()
def create(options: CatalogueOptions) -> Answers:
    """Create the topics that the broker lacks."""
    from claw_r1.claw.topics import catalogue

    return catalogue.on_broker(options, catalogue.create)


@topics.command()
def describe(options: CatalogueOptions) -> Answers:
    """Show each topic: key, policy, partitions, replicas, records."""
    from claw_r1.claw.topics import catalogue

    return catalogue.on_broker(options, catalogue.describe)


@topics.command()
def diff(options: CatalogueOptions) -> Answers:
    """Compare the broker with the catalogue; exit 1 when they differ."""
    from claw_r1.claw.topics import catalogue

    return catalogue.on_broker(options, catalogue.diff)


@topics.command()
def acls(
    options: CatalogueOptions,
    users: UsersOption = "claw-",
    apply: Annotated[
        bool, typer.Option("--apply", help="Write them to the broker, beside those that are there.")
    ] = False,
) -> Answers:
    """List what the user of each room may do with them."""
    from claw_r1.claw.topics import catalogue

    return catalogue.acls(options, users=users, apply=apply)


@topics.command()
def manifests(
    prefixes: PrefixesOption = None,
    partitions: PartitionsOption = 32,
    replication: ReplicationOption = 1,
    generations: GenerationsOption = None,
    users: UsersOption = "claw-",
    kind: Annotated[str, typer.Option(help="Print only this Strimzi kind, such as KafkaTopic.")] = "",
) -> Answers:
    """Print cluster, topics and users for Strimzi."""
    from claw_r1.claw.topics import catalogue

    pairs = itertools.product(prefixes or ["claw"], generations or [1])
    several = [CatalogueOptions(prefix, partitions, replication, generation) for prefix, generation in pairs]
    return catalogue.strimzi(several, users=users, kind=kind)


@topics.command()
def copy(
    to: Annotated[str, typer.Option(metavar="PREFIX", help="The prefix of the copy.")] = "",
    into: Annotated[str, typer.Option(metavar="BROKER", help="host:port of another cluster.")] = "",
    prefix: Prefix = "claw",
    partitions: CopyPartitions = None,
    replication: CopyReplication = None,
) -> Answers:
    """Copy a log to another prefix or cluster while it is used, plans included."""
    from claw_r1.claw.topics.copy_log import run_copy

    return run_copy(prefix, to, partitions, into, replication)
