"""Reasons against data as sentences: the fold's words (`claw_r1.datapool.fold`), each with its remedy."""

import re
from typing import NamedTuple


class Sentence(NamedTuple):
    """The meaning of a reason, and what to do about it."""

    says: str
    todo: str


SAMPLED = "Sample with temperature above 0 and nothing cut off: log-probabilities must be those of the policy that is trained."
WORKER = "Serve it by `claw rollout`, whose plugin hands tokens and versions over; other engines give words alone."
BUG = "It is a fault of this program: its dead letter has the traceback (`claw dlq list`); redrive it after the mend."
SENTENCES: dict[str, Sentence] = {
    "open": Sentence(
        "It is not over.",
        "Let its agent complete it; one that is gone is abandoned at its deadline.",
    ),
    "members_open": Sentence(
        "Members are not over.",
        "Wait, or let the group's deadline close it.",
    ),
    "members_missing": Sentence(
        "Fewer members are ready than it was declared with.",
        "See why its members are not.",
    ),
    "no_ready_member": Sentence(
        "None of its members is ready.",
        "See why its members are not.",
    ),
    "abandoned": Sentence(
        "Nothing came for so long that it was given up.",
        "See whether its agent died; `deadline_s` is how long.",
    ),
    "evicted": Sentence(
        "Somebody evicted it.",
        "Nothing: its facts stay in the log.",
    ),
    "unknown": Sentence(
        "It has rewards or judgements, and no call or registration.",
        "Check the ids that were judged.",
    ),
    "failed_without_outcome": Sentence(
        "It failed, and its outcome was not judged.",
        "Give failures a reward, such as 0, to train on them.",
    ),
    "calls_missing": Sentence(
        "Its agent counted more calls than the log has.",
        "Wait; else calls went past the gateway.",
    ),
    "calls_uncounted": Sentence(
        "It has calls that its completion did not count.",
        "Give retries an idempotency key, or complete again.",
    ),
    "rewards_missing": Sentence(
        "Fewer rewards came than its completion announced.",
        "See whether the scorer runs (`claw rewards stats`).",
    ),
    "no_trainable_call": Sentence(
        "None of its calls can be trained.",
        "See why its calls cannot.",
    ),
    "too_many_calls": Sentence(
        "It has more calls than a record holds.",
        "Begin a trajectory for each task.",
    ),
    "too_many_rewards": Sentence(
        "It has more rewards than a record holds.",
        "Use fewer slots.",
    ),
    "too_many_members": Sentence(
        "It has more members than a record holds.",
        "Give each task a group id of its own.",
    ),
    "too_many_judgements": Sentence(
        "It was judged too often; earlier words are forgotten.",
        "Judge it by fewer names.",
    ),
    "curated_out": Sentence(
        "Somebody said not to train on it.",
        "Take it back in Curation if it was a mistake.",
    ),
    "no_call": Sentence(
        "It was judged, and its call is not in the log.",
        "Wait for the call, or check the id.",
    ),
    "parent_missing": Sentence(
        "The call that its prompt begins with is not there.",
        "Wait for it; else retention took it.",
    ),
    "greedy": Sentence(
        "It was sampled with temperature 0.",
        "Evaluation is so on purpose. To train: " + SAMPLED,
    ),
    **dict.fromkeys(
        ("top_p", "top_k", "min_p", "penalties", "constrained"),
        Sentence(
            "The sampling changed the policy's probabilities.",
            SAMPLED,
        ),
    ),
    "response_empty": Sentence(
        "Its reply has no token.",
        "Raise max_tokens, or see the reply.",
    ),
    "status_aborted": Sentence(
        "Its client went away before the reply ended.",
        "Raise the client's timeout.",
    ),
    "policy_run_mixed": Sentence(
        "Two runs sampled one reply.",
        "Let a worker follow one run.",
    ),
    "multimodal": Sentence(
        "It holds images or sound, which are not trained.",
        "Nothing: text alone is.",
    ),
    **dict.fromkeys(
        ("spans_unknown", "spans", "version_unknown", "token_ids", "logprobs", "prompt_ids"),
        Sentence(
            "The engine did not say which version sampled which tokens.",
            WORKER,
        ),
    ),
    **dict.fromkeys(
        ("ids_malformed", "logprobs_mismatch", "prompt_mismatch", "spans_mismatch"),
        Sentence(
            "What the engine handed over contradicts itself.",
            "Bring gateway and workers to one version.",
        ),
    ),
    "fold_bug": Sentence(
        "Folding it failed.",
        BUG,
    ),
}
UNTOLD = Sentence("The gateway noted this word with the call.", "`claw pool why CALL` has the whole answer.")


def sentence_of(reason: str) -> Sentence:
    """Returns a code's sentence, or else who knows more."""
    return SENTENCES.get(re.sub("^missing_", "", reason), UNTOLD)
