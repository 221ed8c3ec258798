"""Which groups of a broker are looked at; the rest is tested where the dashboard shows them."""

from claw_r1.eventlog.kafka.consumer_groups import GROUPS_MAX, own_first


def test_our_own_groups_are_own_first_on_a_broker_of_many() -> None:
    """Others fill what is left of the bound, in order of their names; who only begins like us is another."""
    others = [*(f"app-{n:03}" for n in range(GROUPS_MAX)), "claws"]
    own = ["claw.streams", "claw.rewards.rule"]
    assert own_first([*others, *own], "claw") == [*others[: GROUPS_MAX - 2], *sorted(own)]
    assert own_first(["b", "claw.streams", "a"], "claw") == ["a", "b", "claw.streams"]
