"""Groups that a run skips one after the other: a run that trains nothing for one reason warns of it, once.

Invariant: the file for `claw status` holds the warnings since the last batch; it does not exist while there are none.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping

import structlog

from schemas.runtime.files import write_atomically
from trainer.settings import TrainerSettings

log = structlog.get_logger()

NUMBER = re.compile(r"\d+")
IN_A_ROW = 20
"""Groups skipped for one reason, without a batch in between, before a person is warned."""


class Skips:
    """Counts of groups skipped since the last batch, by the first word of their reason, numbers in it aside."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._counts: Counter[str] = Counter()
        self._warnings: dict[str, str] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """A batch was planned, or nothing was skipped yet."""
        self._counts.clear()
        self._warnings.clear()
        if self._settings.warnings_file is not None:
            self._settings.warnings_file.unlink(missing_ok=True)

    def count(self, skipped: Mapping[str, str]) -> None:
        """skipped: group_id -> reason."""
        for group_id, reason in sorted(skipped.items()):
            word = NUMBER.sub("N", reason.partition(":")[0])
            self._counts[word] += 1
            if self._counts[word] >= IN_A_ROW and word not in self._warnings:
                self._warn(word, reason, group_id)

    def _warn(self, word: str, reason: str, group_id: str) -> None:
        advice = what_to_do(word, group_id, self._settings)
        log.warning("groups_skipped_in_a_row", reason=reason, groups=IN_A_ROW, example=group_id, what_to_do=advice)
        self._warnings[word] = f"skipped {IN_A_ROW} groups in a row, the last because of {reason}: {advice}"
        if (path := self._settings.warnings_file) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(list(self._warnings.values())))


def what_to_do(word: str, group_id: str, settings: TrainerSettings) -> str:
    """For a person, what the reason means and what helps."""
    if word == "policy_of_other_run":
        return (
            f"the groups were sampled by another run than {settings.run_id}, or by a worker that serves another model id "
            f"than the trainer's model_id {settings.model_id}, and so never loads this run's weights: start the worker "
            f"with --model-id {settings.model_id} (claw up takes it from the trainer's settings), and give the agents "
            f"--run-id {settings.run_id}"
        )
    if word == "prompt_mismatch":
        return "`claw verify` names every call whose prompt was captured wrongly"
    if word == "token_unknown":
        return (
            "the groups hold tokens that the trainer's model_dir does not know: the worker must serve that very model and "
            "tokenizer"
        )
    return f"docs/batches.md tells what the reason means, `claw pool why {group_id}` what it was for one of the groups"
