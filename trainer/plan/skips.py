"""Groups that a run skips one after the other, or waits for in vain, and batches without anything to learn: a run that
trains nothing for one reason warns once.

Invariant: the file for `claw status` holds the warnings since the last batch, and of batches without an advantage until one
has some; it does not exist while there are none.
"""

import json
from collections import Counter
from collections.abc import Mapping

import structlog

from claw_r1.datapool.batch.eligibility import word_of
from claw_r1.runtime.files import write_atomically
from claw_r1.trainer.progress import TrainingProgress
from claw_r1.trainer.settings import TrainerSettings
from claw_r1.trainer.storage.async_writer import attempt

log = structlog.get_logger()

IN_A_ROW = 20
"""Groups skipped for one reason, without a batch in between, before a person is warned."""
FLAT_MAX = 5
"""Batches in a row without an advantage before a person is warned."""
FLAT = "flat"
STARVED_S = 120.0
"""Without a batch, although groups are there, before a person is warned."""
FLAT_ADVICE = (
    "`claw runs show {run}` has the rewards and the share of such groups (zero_variance_share), `claw pool trajectories` and "
    "`claw inspect ID` the episodes: is the reward ever another one, and can this model earn it? Easier tasks, rewards for "
    "parts, a higher temperature or larger groups make members differ"
)

LACKS_ADVICE = (
    "are agents at work that open groups with the tag env:NAME of these environments, as `claw agents run --tag env:NAME` does? "
    "`claw pool batch` counts what is there; "
    "spec.environments gives the shares"
)


class Skips:
    """Counts of groups skipped since the last batch, by the first word of their reason, numbers in it aside."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._counts: Counter[str] = Counter()
        self._warnings: dict[str, str] = {}
        self.begin_anew()

    @property
    def total(self) -> int:
        """Groups skipped since the last batch."""
        return self._counts.total()

    def begin_anew(self) -> None:
        """A batch was planned, or nothing was skipped yet."""
        self._counts.clear()
        self._warnings = {word: line for word, line in self._warnings.items() if word == FLAT}
        self._write()

    def see(self, progress: TrainingProgress) -> None:
        """A batch was trained: it may have taught nothing, as those before it."""
        if progress.without_advantage < FLAT_MAX:
            if self._warnings.pop(FLAT, None) is not None:
                self._write()
        elif FLAT not in self._warnings:
            batches, reward, run = progress.without_advantage, progress.rewards[-1], self._settings.run_id
            advice = FLAT_ADVICE.format(run=run)
            log.warning("nothing_to_learn", batches=batches, reward=round(reward, 3), what_to_do=advice)
            self._note(
                FLAT,
                f"nothing can be learnt: {batches} batches in a row up to batch {progress.sequence}, and all since, had no "
                f"advantage, because all members of each group earned the same (on average {reward:.3g}): {advice}",
            )

    def count(self, skipped: Mapping[str, str]) -> None:
        """skipped: group_id -> reason."""
        for group_id, reason in sorted(skipped.items()):
            word = word_of(reason)
            self._counts[word] += 1
            if self._counts[word] >= IN_A_ROW and word not in self._warnings:
                self._warn(word, reason, group_id)

    def starve(self, left_out: Mapping[str, str], waited_s: float, missing: Mapping[str, int] = {}) -> None:
        """left_out: group_id -> reason, of groups of this run that wait for something. waited_s: since the last batch.

        missing: environment -> groups that the batch lacks of it.
        """
        words = Counter(map(word_of, left_out.values()))
        if waited_s >= STARVED_S and missing and "starved" not in self._warnings:
            self._lacks(missing, waited_s)
        if waited_s < STARVED_S or not words or "starved" in self._warnings:
            return
        word, groups = words.most_common(1)[0]
        example = next(name for name, reason in sorted(left_out.items()) if word_of(reason) == word)
        advice = f"`claw pool why {example}` tells what one of them waits for"
        log.warning("starving", waited_s=round(waited_s), groups=groups, reason=left_out[example], what_to_do=advice)
        self._note(
            "starved", f"no batch for {waited_s:.0f} s: {groups} groups wait because of {left_out[example]}: {advice}"
        )

    def _lacks(self, missing: Mapping[str, int], waited_s: float) -> None:
        """Names the environments without groups, whether or not others have all theirs."""
        lacks = ", ".join(f"{count} of {name}" for name, count in sorted(missing.items()))
        log.warning("environment_starves", waited_s=round(waited_s), missing=dict(missing), what_to_do=LACKS_ADVICE)
        self._note("starved", f"no batch for {waited_s:.0f} s: groups are missing, {lacks}: {LACKS_ADVICE}")

    def _warn(self, word: str, reason: str, group_id: str) -> None:
        advice = what_to_do(word, group_id, self._settings)
        log.warning("groups_skipped_in_a_row", reason=reason, groups=IN_A_ROW, example=group_id, what_to_do=advice)
        self._note(word, f"skipped {IN_A_ROW} groups in a row, the last because of {reason}: {advice}")

    def _note(self, word: str, line: str) -> None:
        self._warnings[word] = line
        self._write()

    def _write(self) -> None:
        if (path := self._settings.warnings_file) is None:
            return
        with attempt("warnings for `claw status`"):  # they stand in the log as well
            if self._warnings:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, json.dumps(list(self._warnings.values())))
            else:
                path.unlink(missing_ok=True)


def what_to_do(word: str, group_id: str, settings: TrainerSettings) -> str:
    """The meaning and remedy of the reason, for people."""
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
