"""`python -m claw_r1.claw`: the `claw` command of this environment, where its script is not on the path."""

from claw_r1.claw.cli import main

if __name__ == "__main__":
    main()
