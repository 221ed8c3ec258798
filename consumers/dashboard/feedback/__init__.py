"""Lets people judge in Curation: the queue, its subjects, and people's feedback.

Input: the pool's rows (trajectories, and scorers' rewards), claw.rewards from the beginning
(people's feedback), and calls by position (conversations). Output: the events of `claw_r1.datapool.feedback`
on claw.rewards, key: the group; an answer is given once they are acknowledged by all replicas. Ordering: none
is needed, a person's later word has the higher revision.

Only events are kept: each person's open items are a function of the topics, so a reload, a second tab and a
second server agree. A replay is a restart.
"""
