"""The errors of travelling weights. All of it is retryable: the receiver still has its old weights."""


class WeightsError(RuntimeError):
    """Root of this room's errors."""


class DeadlineExceeded(WeightsError):
    """A phase did not end in its time."""


class TransferFailed(WeightsError):
    """The bytes could not be had: the source is away, busy, refuses, or ended early."""


class ManifestMismatch(WeightsError):
    """Tensors differ in name, dtype, shape or order from what the manifest promises."""


class DigestMismatch(WeightsError):
    """All bytes arrived, and they are not the promised ones."""


class NoRoom(WeightsError):
    """This machine has no memory for a copy of the version."""


class NotStaged(WeightsError):
    """The trainer does not have the version that was asked for."""


class SecretMissing(WeightsError):
    """Weights would be open to whoever reaches the port."""
