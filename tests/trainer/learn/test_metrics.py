"""Metrics against values computed by hand."""

import math

import pytest
import torch

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.trainer.learn.layouts import TrainedTokens
from claw_r1.trainer.learn.logprobs import TokenScores
from claw_r1.trainer.learn.metrics import TokenTotals, finite, merged
from claw_r1.trainer.learn.objective import ObjectiveLosses
from claw_r1.trainer.plan.plan_metrics import plan_metrics
from tests import facts
from tests.trainer.pooled import RUN, group, pooled


def totals(logprobs, behaviour, versions, parts=1, version=5, environments=(), names=(), **changes):
    whole = []
    columns = logprobs, behaviour, versions, environments or [0] * len(logprobs)
    for piece in zip(*(torch.tensor(x).chunk(parts) for x in columns), strict=True):
        zeros = torch.zeros_like(piece[0])
        tokens = TrainedTokens(
            at=zeros,
            ids=zeros,
            behaviour=piece[1],
            temperatures=zeros,
            advantages=zeros,
            versions=piece[2],
            responses=zeros,
            trajectories=zeros,
            environments=piece[3],
            weights=zeros,
            scale=zeros,
        )
        whole.append(TokenTotals())
        losses = ObjectiveLosses(zeros, zeros.bool(), torch.ones_like(zeros))
        whole[-1].add(tokens, TokenScores(piece[0], zeros), losses, version=version, **changes)
    return merged(whole).means(names)


ENGINE, TRAINER = [-1.0, -2.0, -0.5], [-1.2, -1.5, -0.5]
ALL = [5] * 3


def test_kl_estimators():
    """k1 and k3 of Schulman's note for logp -1, -2, -.5 and ref -1.2, -1.5, -.5."""
    means = totals(TRAINER, ENGINE, ALL)
    assert means["kl_k1"] == pytest.approx((0.2 - 0.5 + 0) / 3, abs=1e-6)
    assert means["kl_k3"] == pytest.approx((0.018731 + 0.148721 + 0) / 3, abs=1e-6)
    assert means["trained_tokens"] == 3


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_means_of_each_environment(parts):
    """They are those of a batch with its tokens alone, however it is cut; the whole batch has the same as without names."""
    means = totals(TRAINER, ENGINE, ALL, parts, environments=[1, 0, 1], names=("castle", "verbs", "other"))
    verbs, castle = totals(TRAINER[::2], ENGINE[::2], ALL[:2]), totals(TRAINER[1:2], ENGINE[1:2], ALL[:1])
    for metric in ("entropy", "clip_share", "kl_k3", "ratio_mean", "masked_share"):
        assert means[f"env.verbs.{metric}"] == pytest.approx(verbs[metric])
        assert means[f"env.castle.{metric}"] == pytest.approx(castle[metric])
    assert castle["kl_k3"] != pytest.approx(verbs["kl_k3"])
    assert not [name for name in means if name.startswith("env.other")]
    plain = totals(TRAINER, ENGINE, ALL)
    assert {name: means[name] for name in plain} == pytest.approx(plain)


def test_effective_sample_size():
    """Equal ratios: 1; unequal: (sum w)^2 / (n sum w^2)."""
    assert totals(ENGINE, ENGINE, ALL)["ess"] == pytest.approx(1.0)
    w = [math.exp(-0.2), math.exp(0.5), 1.0]
    expected = sum(w) ** 2 / (3 * sum(x * x for x in w))
    assert totals(TRAINER, ENGINE, ALL)["ess"] == pytest.approx(expected, abs=1e-6)


def test_a_logprob_that_is_no_number_is_no_gap_of_0():
    """It shows as `nonfinite_max_logprob_gap`, in whichever part it stands; other lags keep their means."""
    for logprobs in ([math.nan, -1.5, -0.5], [-1.2, -1.5, math.nan]):
        for parts in (1, 3):
            assert finite(totals(logprobs, ENGINE, ALL, parts))["nonfinite_max_logprob_gap"] == 1
    means = totals([math.nan, -1.5, -0.5], ENGINE, [5, 4, 4])
    assert not math.isfinite(means["lag_0_kl_k3"])
    assert means["lag_1_kl_k3"] == pytest.approx((0.148721 + 0) / 2, abs=1e-6)


def test_gap_counts_only_tokens_of_the_version_that_is_trained():
    """max |engine - trainer| over current tokens; without one there is no gap to report, not a gap of 0."""
    assert totals(TRAINER, ENGINE, [5, 4, 5])["max_logprob_gap"] == pytest.approx(0.2, abs=1e-6)
    nothing = totals(TRAINER, ENGINE, [4, -1, 3])
    assert "max_logprob_gap" not in nothing
    assert nothing["gap_tokens"] == 0


def test_a_token_of_a_sample_stands_for_several():
    """Weighted sums are those of as many equal tokens; what is not scored is said."""
    sample = totals(TRAINER[:1] * 2, ENGINE[:1] * 2, ALL[:2], weight=3.0)
    whole = totals(TRAINER[:1] * 6, ENGINE[:1] * 6, [5] * 6)
    assert (sample["trained_tokens"], sample["unscored_tokens"], sample["gap_tokens"]) == (6, 4, 2)
    assert all(sample[name] == pytest.approx(whole[name]) for name in ("kl_k1", "kl_k3", "ess", "max_logprob_gap"))


def test_metrics_by_version_lag():
    """How far the policy has gone from each version that sampled; alone, lag 0 is the whole."""
    means = totals(TRAINER, ENGINE, [5, 4, 1])
    assert [means[f"lag_{lag}_kl_k1"] for lag in (0, 1, 3)] == pytest.approx([0.2, -0.5, 0.0], abs=1e-6)
    assert "lag_2_kl_k1" not in means
    assert not [name for name in totals(TRAINER, ENGINE, ALL) if name.startswith("lag")]


def test_micro_batches_do_not_change_metrics():
    """Parts give the metrics of the whole."""
    assert totals(TRAINER, ENGINE, ALL, parts=2) == pytest.approx(totals(TRAINER, ENGINE, ALL))


def test_metrics_of_a_plan():
    """Reward over trajectories, staleness against the version trained, share of groups without variance."""
    history = [*group("a", [1.0, 0.0], version=2, at_us=1), *group("b", [0.5, 0.5], version=3, at_us=2)]
    spec = BatchSpec(groups_per_batch=2, group_size=2, staleness_max=1)
    selection = select(pooled(history).pool, spec, 3, RUN, set())
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=3, seed=0, envelope=facts.envelope())
    values = plan_metrics(plan)
    assert values["reward"] == 0.5
    assert (values["staleness_mean"], values["staleness_max"]) == (0.5, 1.0)
    assert values["zero_variance_share"] == 0.5
    assert (values["groups"], values["trajectories"], values["steps"]) == (2, 4, 8)
    assert values["advantage_share"] == 0.5


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 0.0),
        ({"algorithm": "reinforce_pp"}, 0.0),
        ({"algorithm": "sft"}, 1.0),
        ({"algorithm": "gae"}, None),
        ({"mix": {"imitate": (0.0, 1.0, 0.0)}}, 1.0),
    ],
)
def test_the_share_of_responses_that_teach(changes, share):
    """Of equal rewards none does, unless it is imitated; where a critic makes the advantages, the plan does not know."""
    history = group("a", [-0.3, -0.3], tags=("imitate",))
    spec = BatchSpec(groups_per_batch=1, group_size=2, **changes)
    selection = select(pooled(history).pool, spec, 0, RUN, set())
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=0, seed=0, envelope=facts.envelope())
    assert plan_metrics(plan).get("advantage_share") == share


def test_what_is_not_finite_is_named():
    """Events and JSON carry finite numbers only, and the evidence stays."""
    assert finite({"a": math.nan, "b": math.inf, "c": 1}) == {"nonfinite_a": 1.0, "nonfinite_b": 1.0, "c": 1.0}
