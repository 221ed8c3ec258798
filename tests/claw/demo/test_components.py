"""The processes of a demo: one model, one run and one seed in the arguments of all of them."""

from itertools import pairwise
from pathlib import Path

import pytest

from claw_r1.agentflow.flow import load_flow
from claw_r1.claw.demo.components import GROUP_SIZE, GROUPS_PER_BATCH, LINGER_S, MODEL_ID, SILENT_FLOW, DemoComponents
from claw_r1.claw.demo.run import SETTLE_TIMEOUT_S
from claw_r1.claw.demo.settings import ONLINE_STALENESS_MAX, DemoSettings, Protocol, RewardFrom
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.stack import Stack
from claw_r1.consumers.rewards.config import load as load_rewards
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.component import Component
from claw_r1.trainer.settings import load


@pytest.fixture
def components(tmp_path: Path) -> DemoComponents:
    run_dir = tmp_path / "demo-1"
    run_dir.mkdir()
    return DemoComponents(DemoSettings(seed=7, learning_rate=0), Stack(run_dir=run_dir, bootstrap="kafka:9092"), 8001)


def flags(component: Component) -> dict[str, str]:
    """Each argument, and the one behind it."""
    return dict(pairwise(component.argv))


def test_the_trainer_takes_the_settings_that_the_demo_writes(components: DemoComponents, tmp_path: Path) -> None:
    """The file is one that the trainer reads, with the demo's seed, learning rate and group size."""
    trainer = components.trainer(tmp_path / "model")
    settings = load(["--config", flags(trainer)["--config"]])
    assert (settings.run_id, settings.model_id, settings.seed, settings.learning_rate) == ("demo-1", MODEL_ID, 7, 0)
    assert settings.spec.group_size == GROUP_SIZE
    assert settings.linger_s == LINGER_S < SETTLE_TIMEOUT_S, "the demo waits until the trainer has ended"


def test_a_setting_of_the_trainer_reaches_it(tmp_path: Path) -> None:
    """`--set spec.algorithm=gae` trains with a critic; what the trainer would refuse is refused before anything starts."""
    chosen = DemoSettings(set=["spec.algorithm=gae", "critic.lam=0.9"])
    (tmp_path / "demo-1").mkdir()
    made = DemoComponents(chosen, Stack(run_dir=tmp_path / "demo-1", bootstrap="kafka:9092"), 8001)
    settings = load(made.trainer(tmp_path / "model").argv[4:])
    assert (settings.spec.algorithm, settings.critic.lam, settings.spec.group_size) == ("gae", 0.9, GROUP_SIZE)
    assert settings.has_critic
    assert (chosen.staleness_max, DemoSettings(set=["spec.staleness_max=3"]).staleness_max) == (1, 3)
    for wrong, named in (("critic.lam=0.9", "algorithm grpo has none"), ("spec.algoritm=gae", "no such setting")):
        with pytest.raises(CannotRun, match=named):
            DemoSettings(set=[wrong])


def test_online_agents_are_told_a_base_url_and_a_key_and_groups_of_one_are_trained(tmp_path: Path) -> None:
    """No run, no group and no channel in their arguments; the key in no argument, which others on this machine could read."""
    (tmp_path / "demo-1").mkdir()
    stack, key = Stack(run_dir=tmp_path / "demo-1", bootstrap="kafka:9092"), "claw-agent-secret"
    made = DemoComponents(DemoSettings(online=True), stack, 8001, key)
    agents = made.agents()
    named = {name: value for name, value in agents.env.items() if name.startswith("OPENAI_")}
    assert named == {
        "OPENAI_BASE_URL": "http://127.0.0.1:8001/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": MODEL_ID,
    }
    assert key not in " ".join(agents.argv)
    assert not {"--run-id", "--group-size", "--channel", "--gateway"} & set(agents.argv)
    spec = load(made.trainer(tmp_path / "model").argv[4:]).spec
    assert (spec.algorithm, spec.group_size, spec.groups_per_batch) == (
        "reinforce_pp",
        1,
        GROUP_SIZE * GROUPS_PER_BATCH,
    )
    assert spec.staleness_max == made.settings.staleness_max == ONLINE_STALENESS_MAX
    assert DemoSettings(online=True, set=["spec.staleness_max=2"]).staleness_max == 2


def test_agents_and_worker_name_the_run_that_is_trained(components: DemoComponents, tmp_path: Path) -> None:
    """Calls of another run or another model would never be trained on."""
    (place,) = components.places
    worker, agents = flags(components.rollout(place, tmp_path)), flags(components.agents())
    before, after = (flags(components.evaluation(when)) for when in ("before", "after"))
    assert worker["--served-name"] == MODEL_ID
    for each in (agents, before, after):
        assert (each["--model"], each["--gateway"], each["--seed"]) == (MODEL_ID, "http://127.0.0.1:8001", "7")
    assert {each["--run-id"] for each in (worker, agents, before, after)} == {"demo-1"}
    assert before["--out"] != after["--out"]
    assert (agents["--channel"], agents["--group-size"]) == ("train", str(GROUP_SIZE))


def test_what_ends_by_itself_is_not_started_again(components: DemoComponents) -> None:
    """A model that cannot be made, or an evaluation that fails, ends the demo with its name."""
    for job in (components.model(), components.evaluation("before")):
        assert (job.may_finish, job.budget.restarts_max) == (True, 0)
    assert not components.agents().may_finish


def test_bounds_that_contradict_each_other_are_refused() -> None:
    """The demo could neither stop nor go on between them."""
    with pytest.raises(CannotRun, match="--batches-min 9 is above --batches-max 3"):
        DemoSettings(batches_min=9, batches_max=3)


@pytest.mark.parametrize("reward", [RewardFrom.RULE, RewardFrom.MODEL, RewardFrom.JUDGE], ids=str)
def test_silent_agents_wait_for_the_only_scorer(tmp_path: Path, reward: RewardFrom) -> None:
    """The file is one that the scorers read; the trainer waits for its slot; only what is trained is judged."""
    (tmp_path / "demo-1").mkdir()
    stack = Stack(run_dir=tmp_path / "demo-1", bootstrap="kafka:9092")
    made = DemoComponents(DemoSettings(reward=reward), stack, 8001, scorer_port=8002)
    component = made.scorers.scorer(LogSettings(bootstrap_servers="kafka:9092"))
    (slot,) = load_rewards(Path(flags(component)["--config"]))
    spec = load(made.trainer(tmp_path / "model").argv[4:]).spec
    assert [str(pattern) for pattern in spec.rewards_required] == [slot.name]
    assert (slot.options.channels, slot.options.since) == (("train",), "now")
    assert flags(made.agents())["--flow"] == SILENT_FLOW
    assert flags(made.evaluation("before"))["--flow"] != SILENT_FLOW


def test_people_who_judge_and_silent_agents_are_not_one_demo() -> None:
    with pytest.raises(CannotRun, match="silent"):
        DemoSettings(online=True, reward=RewardFrom.RULE)


@pytest.mark.parametrize("protocol", Protocol)
def test_agents_speak_the_chosen_protocol(tmp_path: Path, protocol: Protocol) -> None:
    """In training and evaluation; a flow of that protocol is there. Who does not choose its words refuses the choice."""
    (tmp_path / "demo-1").mkdir()
    made = DemoComponents(
        DemoSettings(protocol=protocol), Stack(run_dir=tmp_path / "demo-1", bootstrap="kafka:9092"), 8001
    )
    flows = {flags(component)["--flow"] for component in (made.agents(), made.evaluation("before"))}
    (flow,) = flows
    assert flow.lower() == f"claw_r1.claw.demo.verbs.flow:{'' if protocol is Protocol.CHAT else protocol}verbsflow"
    load_flow(flow)
    for other in ({"online": True}, {"reward": RewardFrom.RULE}):
        if protocol is not Protocol.CHAT:
            with pytest.raises(CannotRun, match="--protocol"):
                DemoSettings(protocol=protocol, **other)
