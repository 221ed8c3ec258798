"""What `claw demo` takes."""

from dataclasses import dataclass
from typing import Annotated

import typer

from claw.errors import CannotRun
from claw.options import Device, Prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What a person may change about the demo. Raises CannotRun for bounds that contradict each other."""

    seed: Annotated[int, typer.Option(help="Seed of the tiny model, the tasks and the training.")] = 0
    learning_rate: Annotated[
        float, typer.Option(min=0.0, help="Learning rate; 0 is the control run, which learns nothing.")
    ] = 5e-4
    batches_max: Annotated[int, typer.Option(min=1, help="Stop after this many batches.")] = 60
    batches_min: Annotated[int, typer.Option(min=1, help="Do not stop before this many batches.")] = 25
    prefix: Prefix = "claw"
    device: Device = "auto"

    def __post_init__(self) -> None:
        if self.batches_min > self.batches_max:
            raise CannotRun(f"--batches-min {self.batches_min} is above --batches-max {self.batches_max}")

    @property
    def control(self) -> bool:
        """Whether this run must not learn."""
        return self.learning_rate == 0
