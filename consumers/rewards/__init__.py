"""Scorers as readers of the log: what they say becomes rewards. Deletable without harm: rewards of agents and people stay.

Input: each slot (`source/name`) is a consumer group of its own, `<prefix>.rewards.<source>.<name>`, so its lag is seen and a
slow judge holds back nobody else; several processes share its partitions. Scope `call` reads claw.calls as they come. The other
scopes read the pool's rows, which know when a trajectory or group is over and whole, and get the calls by position.
Output: `RewardAssigned` or `ScoringFailed` on claw.rewards, key: the group.

Delivery: a verdict is kept (claw.rewards.verdicts, one transactional id per slot and partition, which fences the former owner)
before it becomes a reward, and a reward is made from it and nothing else: its ids are functions of content, slot, version and
generation. So whatever dies, nobody is asked twice for what was kept, and a replay changes nothing.
Ordering: none is needed; a reward that was written again is the same event.
"""
