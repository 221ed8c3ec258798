"""The oracle is the product's own since `claw verify` needs it: `consumers/verify/oracle.py`. Change it there."""

from consumers.verify.oracle import *  # noqa: F403
