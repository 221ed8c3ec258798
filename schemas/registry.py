"""A schema registry that only reads, as Confluent's answers: which path gets which status and which JSON. Pure.

Input: the committed schemas (`avro_files`) and the catalogue's topics. Nothing can be registered; an id means one
schema for ever. Subjects are `<topic>-<record>` (Confluent's TopicRecordNameStrategy) for topics of several records,
`<topic>-value` where there is one; there `<topic>-<record>` is understood, too. The version of a schema is its place
among all ids of its record.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

from fastavro import parse_schema
from fastavro.schema import to_parsing_canonical_form

from claw_r1.schemas.avro_files import schema_ids, written_schema
from claw_r1.schemas.json_values import Json
from claw_r1.schemas.topics import TOPICS, Catalogue

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
COMPATIBILITY = "FULL_TRANSITIVE"
READ_ONLY = "this registry is read-only: its schemas are committed with the code (schemas/avro)"
INTEGERS_MAX = (1 << 31) - 1
ALL_CONTEXTS = ":*:"
NAMESPACE = "claw"


class RegistryError(Exception):
    """A registry's error: a code of five digits, of which the first three are the HTTP
    status, or a status alone."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """The reply that goes over HTTP."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int

    def as_json(self) -> Json:
        return {"subject": self.subject, "version": self.version, "id": self.id, "schema": schema_text(self.id)}


class Registry:
    """The answers for the topics of one catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        """Name -> version -> it. Those whose text was withdrawn before 0.1 are left out; the numbers of others stay."""
        self._same: dict[str, str] = {}
        """Another name of a subject -> its name."""
        for topic in TOPICS:
            for record in topic.records:
                full = f"{catalogue.name(topic)}-{NAMESPACE}.{record}"
                subject = full if len(topic.records) > 1 else f"{catalogue.name(topic)}-value"
                self._same[full] = subject
                self._subjects[subject] = _versions(subject, f"{NAMESPACE}.{record}")

    def versions(self) -> list[Version]:
        """All versions of all subjects, those of a subject in order."""
        return [each for versions in self._subjects.values() for each in versions.values()]

    def reply(self, method: str, path: str, query: Mapping[str, str], body: bytes = b"") -> RegistryReply:
        """The answer to a request. path: below the registry's root, decoded or not."""
        parts = [unquote(part) for part in path.split("/") if part]
        try:
            return RegistryReply(200, json.dumps(self._answer(method, parts, query, body)).encode())
        except RegistryError as refusal:
            content = {"error_code": refusal.code, "message": refusal.message}
            return RegistryReply(refusal.status, json.dumps(content).encode())

    def _answer(self, method: str, parts: list[str], query: Mapping[str, str], body: bytes) -> Json:
        match (method, *parts):
            case ("GET" | "HEAD", *rest):
                return self._read(rest, query)
            case ("POST", "subjects", subject):
                return self._same_schema(subject, body).as_json()
            case ("POST", "compatibility", "subjects", subject, "versions", *_):
                return self._compatible(subject, body)
            case ("POST" | "PUT" | "DELETE", *_):
                raise RegistryError(42205, READ_ONLY)
        raise RegistryError(405, "HTTP 405 Method Not Allowed")

    def _read(self, parts: list[str], query: Mapping[str, str]) -> Json:
        match parts:
            case ["schemas", "ids", number, *rest]:
                return self._by_id(number, rest, query)
            case ["subjects", subject, "versions", *rest]:
                return self._by_version(subject, rest)
            case ["subjects"]:
                return self._named(query)
            case ["schemas"]:
                first = -1 if query.get("latestOnly") == "true" else 0
                versions = [each for name in self._named(query) for each in [*self._subjects[name].values()][first:]]
                return [each.as_json() for each in versions]
            case ["config" | "mode" as name, *subjects]:
                for subject in subjects:
                    self._versions_of(subject)
                return {"compatibilityLevel": COMPATIBILITY} if name == "config" else {"mode": "READONLY"}
        constants: dict[tuple[str, ...], Json] = {(): {}, ("schemas", "types"): ["AVRO"], ("contexts",): ["."]}
        if tuple(parts) not in constants:
            raise RegistryError(404, "HTTP 404 Not Found")
        return constants[tuple(parts)]

    def _by_id(self, number: str, rest: list[str], query: Mapping[str, str]) -> Json:
        schema_id = _integer(number)
        if schema_id is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        usages = [each for versions in self._subjects.values() for each in versions.values() if each.id == schema_id]
        if not usages:
            raise RegistryError(40403, f"Schema {schema_id} not found")
        match rest:
            case []:
                highest = {"maxId": max(schema_ids())} if query.get("fetchMaxId") == "true" else {}
                return {"schema": schema_text(schema_id), **highest}
            case ["schema"]:
                return written_schema(schema_id)
            case ["subjects"]:
                return [each.subject for each in usages]
            case ["versions"]:
                return [{"subject": each.subject, "version": each.version} for each in usages]
        raise RegistryError(404, "HTTP 404 Not Found")

    def _by_version(self, subject: str, rest: list[str]) -> Json:
        versions = self._versions_of(subject)
        if not rest:
            return list(versions)
        number = max(versions) if rest[0] in ("latest", "-1") else _integer(rest[0])
        if not number:
            raise RegistryError(
                42202,
                f"The specified version '{rest[0]}' is not a valid version id. Allowed values are between "
                '[1, 2^31-1] and the string "latest"',
            )
        if number not in versions:
            raise RegistryError(40402, f"Version {number} not found.")
        match rest[1:]:
            case []:
                return versions[number].as_json()
            case ["schema"]:
                return written_schema(versions[number].id)
            case ["referencedby"]:
                return []
        raise RegistryError(404, "HTTP 404 Not Found")

    def _same_schema(self, subject: str, body: bytes) -> Version:
        """The newest version of the subject that reads and writes the same bytes as the schema of this body."""
        versions, canonical = self._versions_of(subject), _canonical_of(body)
        same = [each for each in versions.values() if canonical_form(each.id) == canonical]
        if not same:
            raise RegistryError(40403, "Schema not found")
        return same[-1]

    def _compatible(self, subject: str, body: bytes) -> Json:
        """Only what is known to be: other schemas are not compared here, and that is said."""
        try:
            self._same_schema(subject, body)
        except RegistryError as refusal:
            if refusal.code != 40403:
                raise
            raise RegistryError(42205, f"{READ_ONLY}, and compares none with others") from refusal
        return {"is_compatible": True}

    def _versions_of(self, subject: str) -> dict[int, Version]:
        name = self._same.get(subject, subject)
        if name not in self._subjects:
            raise RegistryError(40401, f"Subject '{subject}' not found.")
        return self._subjects[name]

    def _named(self, query: Mapping[str, str]) -> list[str]:
        """Subjects that a query asks for: there are no contexts but the one without a name, and none is deleted."""
        prefix = query.get("subjectPrefix", "").removeprefix(ALL_CONTEXTS)
        return [name for name in self._subjects if name.startswith(prefix) and query.get("deletedOnly") != "true"]


@cache
def schema_text(schema_id: int) -> str:
    """The schema of an id, self-contained, without its docs."""
    return json.dumps(written_schema(schema_id), separators=(",", ":"))


@cache
def canonical_form(schema_id: int) -> str:
    """Avro's parsing canonical form of the schema of an id."""
    return str(to_parsing_canonical_form(parse_schema(written_schema(schema_id), {})))


def _versions(subject: str, record: str) -> dict[int, Version]:
    ids = sorted(schema_id for schema_id, entry in schema_ids().items() if entry["name"] == record)
    numbered = (Version(subject, number, schema_id) for number, schema_id in enumerate(ids, 1))
    return {each.version: each for each in numbered if written_schema(each.id) is not None}


def _canonical_of(body: bytes) -> str:
    """Returns the canonical schema of a body `{"schema": "<Avro as text>"}`."""
    try:
        content: Any = json.loads(body)
        if content.get("schemaType", "AVRO") == "AVRO" and not content.get("references"):
            return str(to_parsing_canonical_form(parse_schema(json.loads(content["schema"]), {})))
    except Exception as broken:  # whatever a parser raises about foreign text means the same
        raise RegistryError(42201, f"Invalid schema: {type(broken).__name__}") from broken
    raise RegistryError(42201, "Invalid schema: Avro without references is what this registry knows")


def _integer(word: str) -> int | None:
    """None for what is no number of 32 bits."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 11 and int(word) <= INTEGERS_MAX else None
