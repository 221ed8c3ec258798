"""The errors that stop an export."""

from claw_r1.consumers.errors import ConsumerError


class CannotExport(ConsumerError):
    """A precondition is missing: the history is cut, the directory is in use, the manifest is of another fold."""


class ManifestInvalid(ConsumerError, ValueError):
    """A file is no manifest, or one of another format."""
