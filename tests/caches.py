"""What a claw home keeps and no test need make or download again: each part is named after everything that decides it."""

from pathlib import Path

from claw_r1.claw.home import PROJECT

CACHE = PROJECT / ".claw" / "cache"
"""The cache of this checkout: Kafka as the setup fetched it, the models of `make demo`."""


def share_caches(home: Path) -> None:
    """A claw home whose jars and models are those of this checkout."""
    (home / "cache").mkdir(parents=True, exist_ok=True)
    for part in ("jars", "models"):
        (CACHE / part).mkdir(parents=True, exist_ok=True)
        link = home / "cache" / part
        if not link.exists():
            link.symlink_to(CACHE / part)
