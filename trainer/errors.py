"""What can go wrong in training. Every one of these ends the process with one clear line; none is retried here."""


class TrainerError(Exception):
    """Root of this room's errors."""


class SettingsInvalid(TrainerError):
    """A setting is missing, wrong or contradicts another."""


class ModelInvalid(SettingsInvalid):
    """The model directory is none, or not a model that can be trained."""


class FactUnreadable(TrainerError):
    """A plan names a call that is not in the facts any more, or whose bytes are not the planned ones."""


class CheckpointInvalid(TrainerError):
    """A checkpoint is damaged, or belongs to another run or another log."""


class Stopped(TrainerError):
    """Somebody asked the trainer to stop; the run can be resumed."""
