"""What stops an export. Each message is one line for a person."""


class ExportError(Exception):
    """Root of this room's errors."""


class CannotExport(ExportError):
    """A precondition is missing: the history is cut, the directory is in use, the manifest is of another fold."""


class ManifestInvalid(ExportError, ValueError):
    """A file is no manifest, or one of another format."""
