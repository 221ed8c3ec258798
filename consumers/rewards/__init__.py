"""Scorers read the log and write rewards. Deleting this room does no harm: rewards of agents and people stay.

Input: each slot (`source/name`) is a consumer group of its own, `<prefix>.rewards.<source>.<name>`, so its lag
is visible and a slow judge delays no other; several processes share its partitions. Scope `call` reads
claw.calls live. The other scopes read the pool's rows, which show when a trajectory or group is over and
complete, and get calls by position. Output: `RewardAssigned` or `ScoringFailed` on claw.rewards, key: the group.

Delivery: a verdict is kept (claw.rewards.verdicts, one transactional id per slot and partition, which fences the former owner)
before it becomes a reward, and a reward is made from it alone: its ids are functions of content, slot, version and
generation. So after any crash no kept verdict is requested again, and a replay changes nothing. Of the log's rows comes a `Subject`,
of that what is `Judged`, of that the scorer's `Opinion`, of that a `VerdictKept`, of that a `RewardAssigned`.
Ordering: none is needed; a rewritten reward is the same event.
"""
