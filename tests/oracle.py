"""The oracle is the product's own since `claw verify` needs it: `consumers/verify/oracle/`. Change it there."""

from claw_r1.consumers.verify.oracle.pool import pool_of
from claw_r1.consumers.verify.oracle.soundness import sound
from claw_r1.consumers.verify.oracle.trajectories import PoolBytes

__all__ = ["PoolBytes", "pool_of", "sound"]
