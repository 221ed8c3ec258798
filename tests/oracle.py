"""The oracle is the product's own since `claw verify` needs it: `consumers/verify/oracle/`. Change it there."""

from consumers.verify.oracle.pool import pool_of
from consumers.verify.oracle.soundness import sound
from consumers.verify.oracle.trajectories import Pool

__all__ = ["Pool", "pool_of", "sound"]
