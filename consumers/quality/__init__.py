"""Quality scores by pure functions, as events. Deletable without harm: nobody waits for a score.

Input: claw.calls, `CallCaptured` only, as a member of the group `<prefix>.quality.<panel>.<generation>`; several processes
of a panel share the partitions. Earlier calls of a trajectory are read where a request is written against them. Output:
claw.rewards, one `StepCurated` per call with the lowest score of the panel as its quality. Key: the call's group_id, so
a score lies in the partition of its call. Ordering: a request continues calls before it in its partition; a base that
came later, or before a long silence of its trajectory, counts as lost; the fold takes scores in any order. Delivery:
at least once (`claw_r1.eventlog.consume`); a score made again has the same id and the same bytes. A replay (another
group, or offsets set back) therefore changes nothing; a new version of a scorer, or a higher `generation`, does. A
person's annotation outranks every score (`claw_r1.datapool.fold.curation`).
"""
