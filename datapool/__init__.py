"""The DataPool: facts folded into steps, trajectories and groups, and batches chosen from them.

`fold` (facts to records) and `batch` (records to plans) are pure: no clock, no log and no database; `batch.spec.load` alone
reads a file, the one that it is given. `view` holds the records for readers: it follows the log and keeps steps in SQLite.
Import contracts in pyproject.toml hold this. `feedback` and `personal_words` (what people say, and what of it stands),
`delta_decoding` (prompts and bodies out of edges) and `immutable_map` (large mappings) are pure, too.

Invariant: the records of a group are a function of the *set* of its facts. No order, duplication, restart or clock
changes them; no setting is read. The content of records, and the resolution of conflicts:

**Identity.** A group holds trajectories, a trajectory holds steps (one per call). All facts of a group share a key, so
they are in one partition; a fact's position is (topic, partition, offset).

| question | answer |
|---|---|
| the same call twice | of the completed captures (else of all) the one received last counts (the agent went on with its reply), then the highest attempt, at its lowest offset; `attempts` lists all |
| two events about one thing | for openings, registrations and completions the highest revision; then the later one: the highest (occurred_at_us, event_id), then the higher content, field by field in the order of the record (of an opening its run and its ordinal first): null is lowest. Two facts with one event_id and time may differ (a recomputed deadline) |
| two rewards in one slot (subject, source, name) | a scorer's verdict (also a failure) before claims without one; then the highest revision, then the later event |
| a completion that carries a reward | a slot of its own (trajectory, `agent`, `completion`), only of the completion that counts; a RewardAssigned for it is refused |
| rewards of different slots | add up; within a slot the later event replaces |
| a slot without a value: taken back (a RewardAssigned of null), or its scorer gave up (ScoringFailed, whose reason stays in `RewardSlot.failed`) | as if never judged, in sums, counts and outcomes, until a later event; the slot stays in the record |
| PreferenceGiven, OutputEdited | no facts of the pool: skipped without a dead letter, and no sign of life |
| status | evicted first; then the highest revision; then completed > failed > abandoned > open; then the later event. Counts, reward and reason are the winner's |
| group declared twice, trajectory registered twice, group closed twice | one event counts as a whole: as above |
| curation | per field (and per scorer of `scores`) the highest revision, then the later event, unless taken back; null keeps the earlier one, a null score does not: its scorer has judged; an event is taken back by a higher one that names it in `undoes` and is not taken back itself |
| channel | `val` wins, then a channel of the operator's (first by name), then `train`; GroupRecord: over all its facts |
| run_id of a group | the one that its counting opening names, else that of its captured calls, the first by name; of a trajectory its registration's, else its calls'. Rewards, judgements and completions set no run: others may send them |
| agent of a trajectory | first by name that is not null (they agree unless a producer errs) |
| purpose of a call | its client's label (a tag `kind:…`, else `call_kind`); else side, where the capture that counts offers no tools and that of another call of the trajectory does; else main. StepRecord.tags has `kind:side`, `kind:subagent` or no such tag, whatever tags of this form the capture has |
| reward before its call | StepRecord without position, reason `no_call` |
| reward by step index | stays with the trajectory, shown in the StepRecord of the call that has the index *now* (its first choice that is captured) |
| reward or curation of an unknown trajectory | TrajectoryRecord `open`, reason `unknown`; no member of its group |
| a call that the completion did not count | folded like any other; the trajectory is not ready (`calls_uncounted`) until it completes again |
| more rewards than the completion counted, more members than declared | folded like any other: these are lower bounds |
| a trajectory evicted | absorbing: a stub TrajectoryRecord stays, steps become tombstones, later facts are ignored |
| a group evicted (GroupEvicted, the later event) | absorbing: one stub GroupRecord stays, all other rows of the group become tombstones. Later facts are ignored, except for the stub's fields: the opening's id, time, revision, run and ordinal, and the run of the calls |

**Order of steps**: (timings.received_us of the first capture, call_id): a retry does not move its call.

**Trainable step** (`StepRecord.trainable`, else `reasons`, see `trainable.py`): captured whole, invariants hold, status
completed, temperature > 0, top_p 1, no top_k, min_p or penalty, not constrained, every token's version known and of one
run, its chain of prompt bases known, not curated away. A chain is known when it ends in a full prompt and each base is
captured, begins with the ids that the prompt was written against (`base_digest`; another attempt may count by now), has
ids that can be read, and is as long as what is kept of it. No clock says which call came first. The digest of a prompt
put together is checked where its ids are read, in the facts (`delta_decoding.resolve`).

**Ready trajectory** (`TrajectoryRecord.ready`, else `reasons`, see `readiness.py`): completed, or failed with
an outcome (a reward of the trajectory itself; a failure without one is no data, whatever its calls earned); exactly as many calls and at least as many rewards as its completion counted; at least one trainable call.
Ready says nothing about rewards of completed ones: `return_total` is null until judged; the batch spec decides.
Counted are calls (all choices `<call_id>.<k>` of one are one, for indices, too) and *slots* with a value (not revisions; not the completion's own).

**Ready group**: no member open, and - closed: at least one listed member ready; declared with a size:
that many members ready; else: at least one ready. A closed group has exactly the members that its
GroupClosed lists; one without events is `unknown`, which is not open. Statistics (`reward_mean`,
`reward_std` with ddof 1, versions) are over ready members in id order; null unless each has a return.

**Digests** chain, so that a reader of three topics never combines rows of different moments: StepRecord.digest is that of the
tokens in the fact at its position (`digests.step_digest`), which the pool does not hold again; TrajectoryRecord.digest covers its StepRecords (`digests.rows_digest`);
GroupMember.digest is the sha256 of the encoded TrajectoryRecord; GroupRecord.digest covers its members.

Where to look: `fold.fold(state, fact, position) -> GroupState`, `project.project(state) -> {RowKey: record}`,
`restore.restore(records) -> GroupState` (exact inverse), `project.changes(before, state)` for a flush's
writes, `view.PoolView` for readers.
"""

FOLD_VERSION = 12
"""Rises when equal facts give other records; a pool holds records of one fold version."""
