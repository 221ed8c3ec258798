"""People judge in Curation: the queue, what it shows, and what people say of it.

Input: the pool's rows (which trajectories there are, what scorers said), claw.rewards from the beginning
(what people said), and calls by position (conversations). Output: the events of `claw_r1.datapool.feedback`
on claw.rewards, key: the group; an answer is given once they are acknowledged by all replicas. Ordering: none
is needed, a person's later word has the higher revision.

Nothing but events is kept: what is open for whom is a function of the topics, so a reload, a second tab and a
second server agree. A replay is a restart.
"""
