"""Access control lists on the broker: written for the users of the rooms,
and answers whether a room's user has what it needs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import cast

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to re-export them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConsumerGroupDescription,
    ResourcePatternType,
    ResourceType,
    TopicDescription,
)

from claw_r1.eventlog.errors import AccessRefused
from claw_r1.eventlog.grants import Grant, Operation, Resource, grants
from claw_r1.eventlog.kafka.librdkafka import admin_config, error_of, request_failure
from claw_r1.eventlog.settings import LogSettings

ANY = cast("str", None)  # its stubs forget that names may be left out
ALLOWING = AclBindingFilter(
    ResourceType.ANY, ANY, ResourcePatternType.ANY, ANY, ANY, AclOperation.ANY, AclPermissionType.ALLOW
)
Description = Future[TopicDescription] | Future[ConsumerGroupDescription]


def allow(settings: LogSettings, users: Mapping[str, Sequence[Grant]]) -> None:
    """Adds these grants to those that the users have. Raises AccessRefused, BrokerUnreachable, LogError."""
    bindings = [_binding(user, grant) for user, needed in users.items() for grant in needed]
    admin = AdminClient(admin_config(settings))  # kept: its requests end with it
    try:
        for future in admin.create_acls(bindings).values():
            future.result()
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings, "the access lists") from raised


def held_grants(settings: LogSettings) -> dict[str, list[Grant]]:
    """Returns what each user may do by the broker's lists; `*` is everybody. librdkafka hides that
    one may not look. Raises BrokerUnreachable, LogError.
    """
    admin = AdminClient(admin_config(settings))
    try:
        bindings = admin.describe_acls(ALLOWING, request_timeout=settings.connect_timeout_s).result()
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings, "the access lists") from raised
    users: dict[str, list[Grant]] = {}
    for binding in bindings:
        user = binding.principal.removeprefix("User:")
        users.setdefault(user, []).append(_grant(binding))
    return users


def check_access(settings: LogSettings, role: str) -> None:
    """Asks the broker what our user may do with the catalogue's topics,
    before a program begins that does it.

    Raises AccessRefused with the first grant that is missing; BrokerUnreachable, LogError. Without a secured wire nobody asks.
    """
    if not settings.secured:
        return
    needed = [grant for grant in grants(settings.catalogue(), role) if not grant.prefixed]
    admin = AdminClient(admin_config(settings))
    options = {"include_authorized_operations": True, "request_timeout": settings.connect_timeout_s}
    topics, groups = (
        list(dict.fromkeys(grant.name for grant in needed if grant.resource == kind)) for kind in ("topic", "group")
    )
    answers = {
        **{("topic", name): each for name, each in admin.describe_topics(TopicCollection(topics), **options).items()},
        **{("group", name): each for name, each in admin.describe_consumer_groups(groups, **options).items()},
    }
    allowed = {resource: _operations(future, settings, resource) for resource, future in answers.items()}
    for grant in needed:
        if grant.operation not in allowed[grant.resource, grant.name]:
            user = settings.security_username or "of this client"
            raise AccessRefused(f"the user {user} may not {grant}: `claw topics acls` says what {role} needs")


def _operations(future: Description, settings: LogSettings, resource: tuple[str, str]) -> set[str]:
    try:
        return {operation.name.lower() for operation in future.result().authorized_operations or ()}
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings, " ".join(resource)) from raised


def _binding(user: str, grant: Grant) -> AclBinding:
    kind = ResourceType[grant.resource.upper()]
    pattern = ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL
    operation = AclOperation[grant.operation.upper()]
    return AclBinding(kind, grant.name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _grant(binding: AclBinding) -> Grant:
    """Kafka has more kinds than a room needs: by its names."""
    kinds = (binding.restype, binding.operation, binding.resource_pattern_type)
    kind, operation, pattern = (cast("Enum", each).name.lower() for each in kinds)
    return Grant(cast("Resource", kind), binding.name, cast("Operation", operation), pattern == "prefixed")
