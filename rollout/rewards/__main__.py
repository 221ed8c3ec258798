"""`python -m claw_r1.rollout.rewards`: serve one reward model. Exit 0 after SIGTERM, 1 when vLLM ended, 2
when it could not start."""

import sys
from collections.abc import Sequence

from claw_r1.rollout.errors import CannotStart, RolloutError
from claw_r1.rollout.rewards.settings import RewardServerSettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra


@needs_extra("rollout")
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, then load what is heavy."""
    command_line = CommandLine(
        "claw rewards serve", "Serve a reward model with vLLM's pooling runner.", RewardServerSettings
    )
    flags = command_line.parse(arguments)
    try:
        settings = command_line.read(RewardServerSettings, flags)
        from claw_r1.rollout.rewards.server import serve

        serve(settings)
    except (RolloutError, SettingsRefused) as error:
        print(f"claw rewards serve: {error}", file=sys.stderr)
        return 2 if isinstance(error, CannotStart | SettingsRefused) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
