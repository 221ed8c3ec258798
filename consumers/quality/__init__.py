"""Quality scores by pure functions, as events. Deletable without harm: nobody waits for a score.

Input: claw.calls, `CallCaptured` only, from the committed offsets of the group `<prefix>.quality.<panel>`, in all
partitions that the broker has; earlier calls of a trajectory, where a request is written against them. Output:
claw.rewards, one `StepCurated` per call with the lowest score of the panel as its quality. Key: the call's group_id, so
a score lies in the partition of its call. Ordering: a request goes on from calls before it in its partition, what came
later is as if lost; the fold takes scores in any order. Delivery: at
least once; offsets are committed after the scores are acknowledged, and a score made again has the same id and the same
bytes. A replay (another group, or offsets set back) therefore changes nothing; a new version of a scorer, or a higher
`generation`, does. A person's judgement outranks every score (`datapool.fold.curation`).
"""
