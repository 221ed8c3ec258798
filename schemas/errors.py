"""The reasons why bytes are not an event. Each reason is a stable word that a dead letter carries."""


class UndecodableRecord(ValueError):
    """The bytes of a record are not an event of ours; retrying cannot help (poison)."""

    reason = "undecodable"


class EmptyValue(UndecodableRecord):
    """The value is null or empty where an event was expected."""

    reason = "empty_value"


class BadMagic(UndecodableRecord):
    """The value does not start with the wire format's magic byte and a whole schema id."""

    reason = "bad_magic"


class UnknownSchemaId(UndecodableRecord):
    """The id names no schema in the committed id file."""

    reason = "unknown_schema_id"


class MalformedDatum(UndecodableRecord):
    """The bytes after the schema id are not a datum of that schema."""

    reason = "malformed_datum"
