"""The errors of training. Every one of these ends the process with one clear line; none is retried here."""

RUN_WAS_OVER = 3
"""Exit status of a trainer whose run was over before it began: its supervisor need not start it again."""


class TrainerError(Exception):
    """Root of this room's errors."""


class SettingsInvalid(TrainerError):
    """A setting is missing, wrong or contradicts another."""


class ModelInvalid(SettingsInvalid):
    """The model directory is none, or not a model that can be trained."""


class BatchLost(TrainerError):
    """A batch was trained and published, and can neither be loaded nor be trained again."""


class CheckpointInvalid(TrainerError):
    """A checkpoint cannot be loaded. An older one may do."""


class CheckpointForeign(CheckpointInvalid):
    """The checkpoint belongs to another run or another log, and so may every other one beside it."""


class NothingLearned(TrainerError):
    """Batch after batch, the optimizer step had to be skipped: a loss or gradient was not finite."""


class Stopped(TrainerError):
    """The trainer was told to stop; the run can be resumed."""


class RankLost(TrainerError):
    """The ranks of a run are no longer at the same point; all of them end, and the next start resumes."""
