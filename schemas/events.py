"""Event types, generated from avro/*.avsc by `python -m claw_r1.schemas.generate`. Do not edit."""

# ruff: noqa: E501
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
CallStatus = Literal["completed", "aborted", "unknown"]
"""How a captured call ended."""
TrajectoryStatus = Literal["open", "abandoned", "failed", "completed", "evicted", "unknown"]
"""Life of a trajectory, in ascending rank: the highest rank seen wins."""
PreferenceOutcome = Literal["chosen", "tie", "both_bad", "withdrawn", "unknown"]
"""How two subjects compare; withdrawn: as if nobody had compared them."""
RunStatus = Literal["finished", "stopped", "failed", "unknown"]
"""How a training run ended."""
WorkerState = Literal["starting", "ready", "updating", "behind", "draining", "dead", "unknown"]
"""What a rollout worker can do now; only `ready` and `updating` take calls to train on; `behind` serves weights that
are too old for that."""


class TensorSpec(Struct, frozen=True, kw_only=True):
    """One tensor of a weights version."""

    name: str
    dtype: str
    """As torch prints it, without `torch.`."""
    shape: tuple[Int64, ...]


class AdapterSpec(Struct, frozen=True, kw_only=True):
    """The LoRA adapter of a weights version: W + alpha / rank * B A of the model that the run began with is that
    version."""

    digest: str
    """Of its tensors' bytes, as that of a version."""
    manifest: tuple[TensorSpec, ...]
    """By the names in peft's file."""
    rank: Int32
    alpha: Int32


class Envelope(Struct, frozen=True, kw_only=True):
    """What every event carries, whoever made it."""

    event_id: str
    """Deduplicates: the same fact sent twice has the same id."""
    occurred_at_us: Int64
    """UTC microseconds on the clock of the producer. Of two facts that fill one slot with one revision the later one
    counts, whoever wrote it (docs/pool.md): write when the fact was stated, and use `revision` where clocks may
    differ."""
    producer: str
    """Component and instance, for example gateway/7f3a."""
    key_name: str | None = None
    """Name of the API key of whoever asked for this event over HTTP; null: no key was given, or nobody asked."""
    run_id: str | None = None
    """The training run that this fact belongs to, where there is one."""
    tenant: str = "default"
    """Owner of the data."""
    causation_id: str | None = None
    """event_id of the event that directly caused this one."""
    correlation_id: str | None = None
    """Shared by everything that one request of a client set in motion."""
    traceparent: str | None = None
    """W3C trace context of the request."""


class FactPosition(Struct, frozen=True, kw_only=True):
    """Where a fact lies."""

    topic: str
    partition: Int32
    offset: Int64


class PlannedStep(Struct, frozen=True, kw_only=True):
    """One call in a plan: found again in the facts by position and digest."""

    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    position: FactPosition
    digest: str
    """StepRecord.digest"""
    trained: bool
    """False: its response is context only."""
    advantage: float | None = None
    """Of this response; null: the trajectory's."""
    reward: float = 0.0
    """Of this call; the outcome's is with the last call."""
    weights: tuple[float, ...] | None = None
    """Of the policy loss, cross-entropy and reference KL in this response; null: as the run's settings say."""


class EpisodeFigures(Struct, frozen=True, kw_only=True):
    """How an episode went, for the curves of its batch; training reads none of it."""

    environment: str = ""
    """NAME of the first tag `env:NAME` of trajectory and group, by name; empty: there is none."""
    status: str = ""
    """TrajectoryRecord.status"""
    response_lengths: tuple[Int32, ...] = ()
    """Sampled tokens of each captured call, in order."""
    truncated: Int32 = 0
    """Replies that were cut off by their length."""
    seconds: float | None = None
    """From the first call's reception to the last reply's end, by the gateway's clock."""
    rewards: Mapping[str, float] = {}
    """`source/name` of a reward slot -> its sum over the episode, unweighted."""


class PlannedTrajectory(Struct, frozen=True, kw_only=True):
    """Everything mutable about a trajectory, frozen when the batch was assembled."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reward: float
    """The return used."""
    advantage: float
    min_version: Int64 | None = None
    max_version: Int64 | None = None
    steps: tuple[PlannedStep, ...]
    """In training order."""
    figures: EpisodeFigures | None = None
    """Null: the plan is older than they are."""


class BatchAssembled(Struct, frozen=True, kw_only=True):
    """The plan of one batch. Replaying it reads facts, never the pool."""

    envelope: Envelope
    run_id: str
    sequence: Int64
    """From 0, without gaps within a run."""
    version: Int64
    """Policy version that the batch is trained on."""
    spec: str
    """JSON of the batch spec."""
    trajectories: tuple[PlannedTrajectory, ...]
    seed: Int64
    """Of everything random in the step."""
    oldest_version: Int64 | None = None
    """Tokens that an older version sampled are context only; null: all may be trained."""


class BatchSkipped(Struct, frozen=True, kw_only=True):
    """Groups that this run will never train; their admission capacity returns."""

    envelope: Envelope
    run_id: str
    group_ids: tuple[str, ...]
    reason: str
    sequence: Int64 | None = None
    """The batch that is given up with these groups: its committed plan cannot be read any more, it is never trained.
    Null: they were in no plan."""


class BatchTrained(Struct, frozen=True, kw_only=True):
    """The optimizer step of a batch is in the checkpoint and in the published weights."""

    envelope: Envelope
    run_id: str
    sequence: Int64
    version: Int64
    """The version that the step made."""
    metrics: Mapping[str, float]
    group_ids: tuple[str, ...] = ()
    """The groups of its plan, in its order: their admission room returns. Empty: read the plan."""
    checkpoint_uri: str = ""
    """Where a checkpoint of it is being written; whole once it has this name, and deleted later. Empty: none was
    due."""
    critic_digest: str = ""
    """sha256 hex of the critic after the batch; empty: no checkpoint was due, or there is no critic."""


class BlobRef(Struct, frozen=True, kw_only=True):
    """Bytes too large for an event, stored beside the log before the event was written."""

    uri: str
    sha256: str
    """hex"""
    size: Int64
    """bytes"""


class Edge(Struct, frozen=True, kw_only=True):
    """A byte string as a change against an earlier one: the first `keep` units of the base, then `suffix`, then its
    last `keep_end`. Units are token ids for prompts and bytes for bodies. Without a base the suffix is everything."""

    base_call_id: str | None = None
    """A call of the same trajectory that was acknowledged before; its prompt + response (or body) is the base."""
    keep: Int32 = 0
    """Units taken from the front of the base."""
    keep_end: Int32 = 0
    """Units taken from the end of the base, after `suffix`; of bodies only."""
    suffix: bytes
    """The rest. Token ids are little-endian int32."""
    full_length: Int32
    """Units of the whole."""
    full_digest: str
    """sha256 hex of the bytes of the whole."""


class VersionSpan(Struct, frozen=True, kw_only=True):
    """Response tokens [start, end) were sampled by this policy version."""

    run_id: str
    """Run whose trainer made the version; `base` before any run."""
    version: Int64
    start: Int32
    """First token, inclusive, counted in response tokens."""
    end: Int32
    """Last token, exclusive."""


class Sampling(Struct, frozen=True, kw_only=True):
    """The effective sampling parameters: what the engine used, defaults filled in."""

    temperature: float
    top_p: float
    top_k: Int32
    """0 is off."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: Int32 | None = None
    seed: Int64 | None = None
    n: Int32 = 1
    """Choices asked for."""
    stop: tuple[str, ...] = ()
    """Stop strings."""
    constrained: bool = False
    """A grammar, a forced tool, a logit bias or a token ban shaped the distribution."""


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts as the engine reported them."""

    prompt_tokens: Int32
    completion_tokens: Int32
    cached_tokens: Int32 | None = None
    """Prompt tokens served from the prefix cache."""


class Timings(Struct, frozen=True, kw_only=True):
    """UTC microseconds on the gateway's clock."""

    received_us: Int64
    dispatched_us: Int64
    first_token_us: Int64 | None = None
    done_us: Int64


class Integrity(Struct, frozen=True, kw_only=True):
    """Whether everything that training needs was captured."""

    complete: bool
    missing: tuple[str, ...] = ()
    """Names of what is absent or contradictory, for example token_ids, logprobs, spans, version_unknown. A word that is
    the pool's own (prompt_mismatch, fold_bug) is shown there as missing_<word>."""


class CallCaptured(Struct, frozen=True, kw_only=True):
    """One model call, exactly as it went through the gateway. Written before the client has the end of its reply."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: Int32 = 0
    """Retries of the same call count up from 0; a user who repeats a call under its key may begin again, at another
    gateway."""
    choice: Int32 = 0
    """Index of the choice within the reply."""
    prompt: Edge
    """Token ids of the prompt as the engine rendered them."""
    base_digest: str = ""
    """What the prompt takes from the call that it is written against: sha256 hex of that call's prompt ids, and where
    ids of its response are kept, too, a digest of both (`datapool.digests.base_digest`); empty where it is written in
    full."""
    response_ids: bytes
    """Sampled ids, little-endian int32, never re-tokenised; includes the end token when it was sampled."""
    response_logprobs: bytes
    """Log-probability of each sampled id under the behaviour policy (after temperature), little-endian float32."""
    spans: tuple[VersionSpan, ...]
    """Tile [0, len(response_ids)); empty when unknown."""
    sampling: Sampling
    finish_reason: str | None = None
    request: Edge
    """Body of the request as the client sent it (JSON), secrets are never in it."""
    request_blob: BlobRef | None = None
    response_body: bytes
    """Body of the reply as the client saw it (JSON)."""
    response_blob: BlobRef | None = None
    model_id: str
    """The model as the project knows it: the scope of versions."""
    worker_id: str | None = None
    upstream: str
    """URL of the server that answered, without credentials."""
    agent: str | None = None
    protocol: str = "chat"
    """What the client spoke: chat, completions, responses, messages, generate; submit_steps where it was sampled
    elsewhere."""
    client: str | None = None
    """The program that called, as its user-agent begins."""
    call_kind: str | None = None
    """What the client says that the call is: main; side: of an agent for itself (a title, a summary); subagent: of an
    agent that another one started. Null: it does not say, and the pool tells from all calls of the trajectory
    (`has_tools`)."""
    has_tools: bool = False
    """Whether the request offers tools to the model. A call without tools is a side call where other calls of its
    trajectory have some."""
    parent_trajectory: str | None = None
    """Of a sub-agent: the trajectory that started it."""
    identity_source: str = "path"
    """By what the trajectory is known: path, headers, session:<header or field>, lineage, or none."""
    adapted: tuple[str, ...] = ()
    """What the engine got otherwise than `request` says: model, strict, sampling, previous_response."""
    channel: str = "train"
    """train, val, or a channel of the operator's."""
    tags: tuple[str, ...] = ()
    status: CallStatus
    http_status: Int32
    idempotency_key: str | None = None
    usage: Usage
    timings: Timings
    integrity: Integrity


class CallFailed(Struct, frozen=True, kw_only=True):
    """A call that produced no tokens: refused, timed out or broken upstream."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: Int32 = 0
    """Retries of the same call count up from 0."""
    http_status: Int32
    reason: str
    """A short stable word."""
    message: str = ""
    model_id: str = ""
    worker_id: str | None = None
    upstream: str = ""
    agent: str | None = None
    channel: str = "train"
    timings: Timings


class Judgement(Struct, frozen=True, kw_only=True):
    """One StepCurated as a step's record keeps it, whether it counts or not."""

    event_id: str
    occurred_at_us: Int64 = 0
    """UTC microseconds, of the event: of equal revisions the later word counts."""
    revision: Int64 = 0
    who: str
    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] | None = None
    note: str | None = None
    undoes: tuple[str, ...] = ()
    """Event ids of judgements that it took back."""
    scores: Mapping[str, float | None] = {}
    """By scorer, sorted."""


class Curation(Struct, frozen=True, kw_only=True):
    """What counts of the judgements of a step, field by field, and all of them."""

    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    who: str = ""
    """Whose is the highest judgement that counts."""
    judgements: tuple[Judgement, ...] = ()
    """All of them, those taken back too, sorted by (revision, occurred_at_us, event_id)."""
    scores: Mapping[str, float | None] = {}
    """By scorer, sorted: of each the highest judgement that counts."""


class GroupClosed(Struct, frozen=True, kw_only=True):
    """A reactor closed a group at its deadline: the members are those listed."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    members: tuple[str, ...]
    """trajectory_ids, sorted"""
    reason: str
    last_progress_event_id: str


class GroupEvicted(Struct, frozen=True, kw_only=True):
    """An operator, or retention, took a whole group out of the pool: one stub stays. Absorbing."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    reason: str
    requested_by: str


class GroupMember(Struct, frozen=True, kw_only=True):
    """A trajectory as its group sees it."""

    trajectory_id: str
    status: TrajectoryStatus
    ready: bool
    return_total: float | None = None
    min_version: Int64 | None = None
    max_version: Int64 | None = None
    digest: str


class GroupOpened(Struct, frozen=True, kw_only=True):
    """A group was declared: what it is for and how many members it expects."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    expected_size: Int32 | None = None
    """Trajectories; undeclared: the batch spec decides."""
    channel: str = "train"
    task: str | None = None
    """JSON of what the agent was asked to do."""
    deadline_us: Int64 | None = None
    """UTC microseconds; after it the reactor closes the group with the members that are complete."""
    agent: str | None = None
    tags: tuple[str, ...] = ()
    ordinal: Int64 | None = None
    """Place of its task in the order in which its run takes tasks, from 0, over all epochs; null: it is in no such
    order."""
    revision: Int64 = 0
    """A higher revision replaces a lower one, whatever the clocks of their producers say; of equal ones the later word
    counts."""


class GroupRecord(Struct, frozen=True, kw_only=True):
    """A group as data. Key: group_id."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    declared: bool
    declared_event_id: str = ""
    declared_us: Int64 = 0
    """UTC microseconds, when that event says that it occurred."""
    declared_revision: Int64 = 0
    """`GroupOpened.revision`."""
    declared_run_id: str | None = None
    """The run that its opening names."""
    expected_size: Int32 | None = None
    channel: str = ""
    """val wins when members disagree."""
    task: str | None = None
    """JSON"""
    deadline_us: Int64 | None = None
    agent: str | None = None
    ordinal: Int64 | None = None
    """Of its opening."""
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    """Whose group it is: the run that its opening names, else that of its captured calls."""
    calls_run_id: str | None = None
    """The run that its captured calls name; the first by name where they name several."""
    members: tuple[GroupMember, ...] = ()
    """Sorted by trajectory_id; exactly the listed ones once closed; the first of them where a record holds no more."""
    members_left_out: Int32 = 0
    """Members that the record has no room for."""
    closed: bool = False
    closed_event_id: str = ""
    closed_us: Int64 = 0
    """UTC microseconds, when that event says that it occurred."""
    closed_members: tuple[str, ...] = ()
    evicted_event_id: str = ""
    """Of the winning GroupEvicted: the row is a stub then, and the group has no other row."""
    evicted_us: Int64 = 0
    """UTC microseconds, when that event says that it occurred."""
    evicted_reason: str = ""
    ready: bool
    reasons: tuple[str, ...] = ()
    """Why it is not ready, sorted."""
    reward_mean: float | None = None
    reward_std: float | None = None
    """Sample standard deviation (ddof 1)."""
    zero_variance: bool = False
    min_version: Int64 | None = None
    max_version: Int64 | None = None
    last_progress_event_id: str = ""
    last_progress_us: Int64 = 0
    digest: str = ""
    """sha256 hex over its members' digests."""


class KeyRecorded(Struct, frozen=True, kw_only=True):
    """An API key as it stands now. Key: the hash. The key itself is known to its owner alone."""

    envelope: Envelope
    digest: str
    """sha256 hex of the key."""
    name: str
    """By which a person tells it from others; two keys share it while one takes the place of the other."""
    role: str
    """agent, annotator, reader or operator."""
    expires_us: Int64 | None = None
    """UTC microseconds, from when it is not valid; null: never."""
    revoked: bool = False
    scope: str | None = None
    """Sessions of calls under this key are trajectories of this scope."""
    aliases: Mapping[str, str] = {}
    """Model that a client asks for, `*` at its end for any -> model that is served."""
    sampling: Mapping[str, float] = {}
    """Sampling parameters that win over the client's."""
    strip_strict: bool = False
    """Take `strict` out of tools, so that no grammar shapes what is sampled."""
    idle_s: float | None = None
    """Sessions under this key are complete after such a silence; null: somebody completes them."""


class OutputEdited(Struct, frozen=True, kw_only=True):
    """Somebody wrote a better reply to a call. For export only: nobody sampled it. Of one who and call the highest
    (revision, occurred_at_us, event_id) counts. The pool does not fold it."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    message: str | None = None
    """JSON: the assistant's message in chat's format. Null takes the edit back."""
    comment: str | None = None
    source: str
    """`human:<who>`."""
    revision: Int64 = 0


class SubjectRef(Struct, frozen=True, kw_only=True):
    """A trajectory of the group, or one call of it."""

    trajectory_id: str
    call_id: str | None = None


class PreferenceGiven(Struct, frozen=True, kw_only=True):
    """Somebody compared two subjects of a group. Of one who, name and unordered pair the highest (revision,
    occurred_at_us, event_id) counts. The pool does not fold it."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    chosen: SubjectRef
    rejected: SubjectRef
    outcome: PreferenceOutcome = "unknown"
    """Of a tie, and of two bad ones, the order of the two says nothing."""
    name: str = "overall"
    """In which respect."""
    strength: float | None = None
    """0 (barely) to 1 (clearly)."""
    comment: str | None = None
    source: str
    """`human:<who>`, or a scorer."""
    revision: Int64 = 0


class VerdictRef(Struct, frozen=True, kw_only=True):
    """What a scorer's reward was made from: its verdict, and what that cost."""

    verdict_id: str
    """`VerdictKept.verdict_id`."""
    version: Int32
    """Of the scorer, which is the slot: `source/name@version`."""
    generation: Int32 = 0
    """0: judged as it came; higher ones: scored again (`claw rewards backfill`)."""
    cached: bool = False
    """The verdict was given on another subject of equal content: nothing was paid."""
    tokens: Int64 = 0
    """Prompt and completion tokens that it cost."""
    seconds: float = 0.0
    """Wall time from being asked to the answer."""
    price: float | None = None
    """In the currency of the scorer's `price_per_million`; null: none was stated."""
    calls: tuple[str, ...] = ()
    """The judge's own calls, as captured: `group/trajectory/call`."""


class RewardAssigned(Struct, frozen=True, kw_only=True):
    """A reward for a call, for a step by its index, or (neither given) for the trajectory. Slot = (subject, source,
    name); the highest (revision, occurred_at_us, event_id) wins, and whatever a scorer's verdict says before all that
    is said without one. Of a trajectory, source `agent` and name `completion` are its completion's own and are
    refused."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str | None = None
    step_index: Int32 | None = None
    """Counted from 0 over the trajectory's calls; of one with several choices the first is meant."""
    source: str = "agent"
    """Who judged."""
    name: str = "outcome"
    """Which component."""
    value: float | None = None
    """Null takes the slot back: as if nobody had spoken, until a later word."""
    revision: Int64 = 0
    metadata: str | None = None
    """JSON"""
    verdict: VerdictRef | None = None
    """Of a scorer's reward: what it was made from."""


class RewardSlot(Struct, frozen=True, kw_only=True):
    """The winning reward of one slot."""

    call_id: str | None = None
    step_index: Int32 | None = None
    source: str
    name: str
    value: float | None = None
    """Null: taken back, or nobody could tell."""
    revision: Int64
    event_id: str
    occurred_at_us: Int64 = 0
    """UTC microseconds, of the event: of equal revisions the later word counts."""
    verdict: bool = False
    """Whether a scorer's kept verdict says it (`RewardAssigned.verdict`): no word without one outranks it."""
    failed: str | None = None
    """Why its scorer gave up, in a word: `ScoringFailed.reason`."""


class RunEnded(Struct, frozen=True, kw_only=True):
    """The run is over."""

    envelope: Envelope
    run_id: str
    status: RunStatus
    reason: str = ""
    batches: Int64
    version: Int64


class RunStarted(Struct, frozen=True, kw_only=True):
    """A training run began (or was resumed: same run_id, next incarnation)."""

    envelope: Envelope
    run_id: str
    model_id: str
    incarnation: Int32
    config: str
    """JSON of the whole configuration."""
    group_size: Int32
    groups_per_batch: Int32
    staleness_max: Int32
    """versions"""
    facts_prefix: str
    """Topic prefix whose facts the plans refer to."""


class ScoringFailed(Struct, frozen=True, kw_only=True):
    """A scorer gave up on a subject: it claims the slot without a value, so whoever waits for it learns that nothing
    comes. A later word of the slot counts."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str | None = None
    source: str
    name: str
    revision: Int64 = 0
    reason: str
    """A stable word: deadline, crashed, unparsable, not_finite, ..."""
    detail: str = ""
    """A line for people."""
    verdict: VerdictRef | None = None


class StepCurated(Struct, frozen=True, kw_only=True):
    """A person or a tool judged a step, or took judgements back. Fields that are null leave the earlier judgement; per
    field the highest (revision, occurred_at_us, event_id) wins among those that nobody took back."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] | None = None
    note: str | None = None
    who: str
    revision: Int64 = 0
    undoes: tuple[str, ...] = ()
    """Event ids of judgements of this step, below this one in (revision, occurred_at_us, event_id), that count no more:
    as if nobody had ever given them. Of an undo: what it took back counts again."""
    scores: Mapping[str, float | None] = {}
    """Scorer (`name@version`) -> 0 (bad) to 1 (good); null: it looked and has nothing to say. Per scorer the highest
    (revision, occurred_at_us, event_id) counts."""


class StepRecord(Struct, frozen=True, kw_only=True):
    """One model call as data: small, everything but its tokens. Key: group/trajectory/call. A record without position
    is one whose reward or curation came before the call."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: Int32 = 0
    """Of the capture that counts: of the completed ones (else of all) the one received last, whose reply the agent went
    on with."""
    first_received_us: Int64 = 0
    """UTC microseconds, when the first of its captures was received: its place among the calls, which a retry does not
    move."""
    attempts: tuple[Int32, ...] = ()
    """All attempts seen, sorted."""
    position: FactPosition | None = None
    """Of its CallCaptured in the facts: of the capture that counts, at the lowest offset seen."""
    digest: str = ""
    """sha256 hex over prompt digest, response ids, logprobs and spans: what training reads."""
    prompt_id: str = ""
    """sha256 hex of the ids of the whole prompt: equal for calls that were asked the same."""
    response_id: str = ""
    """sha256 hex of the response ids."""
    prompt_length: Int32 = 0
    """tokens"""
    response_length: Int32 = 0
    """tokens"""
    base_call_id: str | None = None
    """The call that its prompt is written against."""
    base_keep: Int32 = 0
    """Ids taken from the front of the base."""
    base_digest: str = ""
    """What the prompt takes from its base, by digest: `CallCaptured.base_digest`."""
    spans: tuple[VersionSpan, ...] = ()
    min_version: Int64 | None = None
    max_version: Int64 | None = None
    policy_run_id: str | None = None
    sampling: Sampling | None = None
    finish_reason: str | None = None
    status: CallStatus = "unknown"
    trainable: bool = False
    """Captured whole, sampled on policy, and not curated away."""
    reasons: tuple[str, ...] = ()
    """Why it is not trainable, sorted."""
    rewards: tuple[RewardSlot, ...] = ()
    """Slots whose subject is this call, sorted."""
    reward_total: float | None = None
    """Sum of the slots."""
    curation: Curation | None = None
    model_id: str = ""
    worker_id: str | None = None
    agent: str | None = None
    channel: str = ""
    task: str | None = None
    """JSON, of its trajectory."""
    tags: tuple[str, ...] = ()
    call_kind: str | None = None
    """What its client says that the call is. What it counts as stands in `tags`: `kind:side` and `kind:subagent`, or
    neither."""
    has_tools: bool = False
    """Whether the request offered tools to the model."""
    usage: Usage | None = None
    timings: Timings | None = None
    integrity: Integrity | None = None
    run_id: str | None = None


class StreamPosition(Struct, frozen=True, kw_only=True):
    """Next offset of each source topic that is already folded into the pool of this partition; written in the same
    transaction."""

    partition: Int32
    offsets: Mapping[str, Int64]
    fold_version: Int32
    updated_at_us: Int64


class TrajectoryAbandoned(Struct, frozen=True, kw_only=True):
    """A reactor saw no progress until the deadline. event_id is uuid5 of subject, kind and last progress."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reason: str
    last_progress_event_id: str


class TrajectoryCompleted(Struct, frozen=True, kw_only=True):
    """The agent says that it is done. In the log it stands after every acknowledged call of the trajectory. Of two
    completions one counts as a whole: status, counts and reward are never mixed."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    status: TrajectoryStatus
    """completed or failed"""
    calls: Int32 | None = None
    """Acknowledged calls that the agent counted (one with several choices is one); ready only when exactly as many are
    there."""
    rewards: Int32 | None = None
    """Slots that the agent filled before, this event's own reward not among them; ready only when as many are there."""
    reward: float | None = None
    """Outcome reward, a slot of its own: (trajectory, source `agent`, name `completion`). Rewards of different slots
    add up; within a slot the later word replaces; this one is corrected by completing again."""
    revision: Int64 = 0
    """A higher revision replaces a lower one, whatever the clocks of their producers say; of equal ones the later word
    counts."""


class TrajectoryEvicted(Struct, frozen=True, kw_only=True):
    """An operator erased a trajectory from the pool. Absorbing."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reason: str
    requested_by: str


class TrajectoryRecord(Struct, frozen=True, kw_only=True):
    """A trajectory as data. Key: group/trajectory."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    status: TrajectoryStatus
    status_event_id: str = ""
    status_us: Int64 = 0
    """UTC microseconds, when that event says that it occurred."""
    status_revision: Int64 = 0
    """`TrajectoryCompleted.revision`."""
    reason: str = ""
    """Why abandoned or evicted."""
    calls_expected: Int32 | None = None
    rewards_expected: Int32 | None = None
    calls: tuple[str, ...] = ()
    """call_ids in order of (first received, call_id); the first of them where a record holds no more"""
    offsets: tuple[Int64, ...] = ()
    """Where the captures that count lie in claw.calls, one for each of `calls`; the partition is that of the group."""
    calls_left_out: Int32 = 0
    """Calls that the record has no room for."""
    branches: Int32 = 0
    """Lines of calls, as far as prompt edges tell: a call that keeps all of its base goes on with it, others begin a
    line."""
    failed_calls: tuple[str, ...] = ()
    """call_id#attempt of failures, sorted; the first so many"""
    rewards: tuple[RewardSlot, ...] = ()
    """Slots of the trajectory, and of steps by index, sorted."""
    outcome: float | None = None
    """Sum of the trajectory's slots."""
    return_total: float | None = None
    """Outcome + rewards of its steps."""
    min_version: Int64 | None = None
    max_version: Int64 | None = None
    policy_run_id: str | None = None
    """The run whose versions sampled it; `mixed` when several."""
    channel: str = ""
    agent: str | None = None
    task: str | None = None
    """JSON"""
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    """The run that its registration names, else that of its captured calls."""
    calls_run_id: str | None = None
    """The run that its captured calls name; the first by name where they name several."""
    trainable_calls: Int32 = 0
    ready: bool
    reasons: tuple[str, ...] = ()
    """Why it is not ready, sorted."""
    registered_event_id: str = ""
    """Of the winning TrajectoryStarted, or empty."""
    registered_us: Int64 = 0
    """UTC microseconds, when that event says that it occurred."""
    registered_revision: Int64 = 0
    """`TrajectoryStarted.revision`."""
    registered_run_id: str | None = None
    """The run that its registration names."""
    idle_s: float | None = None
    """Silence after which a reactor completes it."""
    metadata: str | None = None
    """JSON"""
    last_progress_event_id: str = ""
    """Highest (occurred_at_us, event_id) of its facts."""
    last_progress_us: Int64 = 0
    digest: str = ""
    """sha256 hex over the digests of its steps' records."""


class TrajectoryStarted(Struct, frozen=True, kw_only=True):
    """A trajectory was registered before its first call (optional); by the gateway, where it is a session that nobody
    completes."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    channel: str = "train"
    agent: str | None = None
    task: str | None = None
    """JSON"""
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    """JSON"""
    idle_s: float | None = None
    """A reactor completes it after such a silence: a session of traffic that has no end of its own."""
    revision: Int64 = 0
    """A higher revision replaces a lower one, whatever the clocks of their producers say; of equal ones the later word
    counts."""


class VerdictKept(Struct, frozen=True, kw_only=True):
    """What a scorer said of a subject, kept before it is published. Key: verdict_id, in the partition of the subject's
    group. Equal content under one scorer, version and generation is judged once."""

    envelope: Envelope
    verdict_id: str
    """uuid5 of content digest, source, name, version and generation."""
    source: str
    """Who judges."""
    name: str
    """Which component."""
    version: Int32
    generation: Int32 = 0
    scope: str
    """call, next, steps, trajectory or group."""
    digest: str
    """sha256 hex of the content that was judged."""
    values: tuple[float | None, ...] = ()
    """One; of `steps` one per call in order, of `group` one per member by trajectory_id. Null: nothing to say."""
    failed: str | None = None
    """Why the scorer gave up, in a word; then there are no values."""
    detail: str = ""
    """Words for people: the judge's reasons, or what failed."""
    spread: float | None = None
    """Sample standard deviation of several votes."""
    subject: str = ""
    """The subject that was judged first: `group/trajectory[/call]`."""
    tokens: Int64 = 0
    """Prompt and completion tokens that it cost."""
    seconds: float = 0.0
    """Wall time from being asked to the answer."""
    price: float | None = None
    calls: tuple[str, ...] = ()
    """The judge's own calls, as captured: `group/trajectory/call`."""
    settings_digest: str = ""
    """sha256 hex of the scorer's settings and rubric: two digests under one slot and version are two scorers."""


class VersionEvaluated(Struct, frozen=True, kw_only=True):
    """What the evaluation of a policy version on the val channel came to, as its trainer read it from the pool."""

    envelope: Envelope
    run_id: str
    version: Int64
    """That sampled all of it."""
    trajectories: Int64
    """How many were counted."""
    left_out: Int64 = 0
    """Trajectories of the evaluation that were not counted: another version sampled a part, they did not end, or nobody
    judged them."""
    greedy: float | None = None
    """Mean return at temperature 0; null: none was played."""
    pass_at: Mapping[str, float] = {}
    """k -> share of tasks that one of k samples solves, unbiased."""
    best: bool
    """Whether no version evaluated before was better; none of trained tasks once one of held-out tasks was."""
    held_out: bool | None = None
    """Whether none of its tasks is trained on by who played them; null: its trainer did not say."""
    checkpoint_uri: str | None = None
    """HF-format directory with exactly these weights; null: none was kept."""


class WeightsPublished(Struct, frozen=True, kw_only=True):
    """A weights version exists and can be had."""

    envelope: Envelope
    model_id: str
    run_id: str
    version: Int64
    """Never reused for other bytes."""
    digest: str
    """Of the tensors' bytes in manifest order: `b3:` and blake3 in hex, or sha256 in hex alone."""
    bytes_total: Int64
    manifest: tuple[TensorSpec, ...]
    offer_url: str | None = None
    """Where a worker gets the bytes: GET with run_id, version and digest."""
    epoch: str = ""
    """Changes with each incarnation of the trainer."""
    checkpoint_uri: str | None = None
    """HF-format directory with exactly these weights."""
    sequence: Int64 | None = None
    """Batch that made it."""
    staleness_max: Int64 | None = None
    """What a version samples is trained while the run is at most so many versions ahead of it; null: not known."""
    probe_ids: bytes = b""
    """Token ids, little-endian int32, with which a worker checks what it loaded; empty: nothing to check with."""
    probe_logprobs: bytes = b""
    """Log-probability of each of these ids but the first, given those before it, at temperature 1 by the trainer;
    little-endian float32."""
    adapter: AdapterSpec | None = None
    """What may be had in the place of the whole version, by who began with the same model; null: it was not trained by
    adapters."""


class WorkerReported(Struct, frozen=True, kw_only=True):
    """What a rollout worker is and can do. Key: worker_id."""

    envelope: Envelope
    worker_id: str
    url: str
    model_id: str
    model: str
    """Name under which the engine serves it."""
    state: WorkerState
    run_id: str | None = None
    version: Int64 | None = None
    """Loaded and labelled."""
    in_flight: Int32 = 0
    report_interval_s: float
    capabilities: tuple[str, ...] = ()
    """For example spans_json, spans_sse."""
    detail: str | None = None
    kv_usage: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    sync_ms: Mapping[str, float] = {}
    """The last change of weights, milliseconds by phase: fetch, pause, load, finish, probe; and paused, the time
    without sampling."""
    seconds: Mapping[str, float] = {}
    """Since the start of this engine, by what it did: serving (a call was in it), idle (none), paused (weights
    changed)."""
    weights_from: str | None = None
    """How the loaded version came here (this host's memory, nccl, gloo, trainer, checkpoint), and why not by what was
    tried before."""


Event = (
    BatchAssembled
    | BatchSkipped
    | BatchTrained
    | CallCaptured
    | CallFailed
    | GroupClosed
    | GroupEvicted
    | GroupOpened
    | GroupRecord
    | KeyRecorded
    | OutputEdited
    | PreferenceGiven
    | RewardAssigned
    | RunEnded
    | RunStarted
    | ScoringFailed
    | StepCurated
    | StepRecord
    | StreamPosition
    | TrajectoryAbandoned
    | TrajectoryCompleted
    | TrajectoryEvicted
    | TrajectoryRecord
    | TrajectoryStarted
    | VerdictKept
    | VersionEvaluated
    | WeightsPublished
    | WorkerReported
)
"""Anything that stands on a topic."""
EVENT_TYPES: dict[str, type[Event]] = {
    "BatchAssembled": BatchAssembled,
    "BatchSkipped": BatchSkipped,
    "BatchTrained": BatchTrained,
    "CallCaptured": CallCaptured,
    "CallFailed": CallFailed,
    "GroupClosed": GroupClosed,
    "GroupEvicted": GroupEvicted,
    "GroupOpened": GroupOpened,
    "GroupRecord": GroupRecord,
    "KeyRecorded": KeyRecorded,
    "OutputEdited": OutputEdited,
    "PreferenceGiven": PreferenceGiven,
    "RewardAssigned": RewardAssigned,
    "RunEnded": RunEnded,
    "RunStarted": RunStarted,
    "ScoringFailed": ScoringFailed,
    "StepCurated": StepCurated,
    "StepRecord": StepRecord,
    "StreamPosition": StreamPosition,
    "TrajectoryAbandoned": TrajectoryAbandoned,
    "TrajectoryCompleted": TrajectoryCompleted,
    "TrajectoryEvicted": TrajectoryEvicted,
    "TrajectoryRecord": TrajectoryRecord,
    "TrajectoryStarted": TrajectoryStarted,
    "VerdictKept": VerdictKept,
    "VersionEvaluated": VersionEvaluated,
    "WeightsPublished": WeightsPublished,
    "WorkerReported": WorkerReported,
}
