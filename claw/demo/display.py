"""The look of a running demo: one live line on a terminal, a line per batch elsewhere.
Everything goes to stderr."""

import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from claw_r1.claw.demo.observer import DemoProgress


class Display:
    """Shows progress. A context manager: the live line ends with it."""

    def __init__(self, *, as_json: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = (
            Live(console=self._console, refresh_per_second=4) if self._console.is_terminal and not as_json else None
        )
        self._batches_shown = 0

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, soft_wrap=True)
        sys.stderr.flush()

    def show(self, progress: DemoProgress, seconds: float) -> None:
        """The present counts: replaced in place on a terminal, printed once per new batch elsewhere."""
        if self._live:
            self._live.update(Text(line(progress, seconds)))
        elif len(progress.batches) > self._batches_shown:
            self._batches_shown = len(progress.batches)
            self.say(line(progress, seconds))


def line(progress: DemoProgress, seconds: float) -> str:
    """Counts of the run on one line."""
    last = progress.batches[-1].metrics if progress.batches else {}
    reward = f"{last['reward']:.2f}" if last else "-"
    version = "-" if progress.version is None else str(progress.version)
    waiting = max(0, len(progress.ready) - round(sum(batch.metrics["groups"] for batch in progress.batches)))
    return (
        f"{seconds:5.0f} s  batch {len(progress.batches):3d}  reward {reward}  version {version}  staleness {last.get('staleness_mean', 0):.1f}"
        f"  calls captured {progress.calls}  groups ready {waiting}"
    )
