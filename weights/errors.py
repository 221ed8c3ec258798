"""What can go wrong while weights travel. All of it is retryable: the receiver still has its old weights."""


class WeightsError(RuntimeError):
    """Root of this room's errors."""


class DeadlineExceeded(WeightsError):
    """A phase did not end in its time."""


class TransferFailed(WeightsError):
    """The other side vanished or the group could not be formed."""


class ManifestMismatch(WeightsError):
    """Tensors differ in name, dtype, shape or order from what the manifest promises."""


class DigestMismatch(WeightsError):
    """All bytes arrived, and they are not the promised ones."""


class TransferRefused(WeightsError):
    """The trainer does not have the version that was asked for."""


class SendersBusy(TransferRefused):
    """The version is there, but no sender is free; ask again."""
