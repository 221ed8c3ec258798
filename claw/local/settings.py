"""The settings of `claw up`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.options import DeviceOption, Prefix, ServesDashboard, TlsFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """The components to start."""

    model: Annotated[
        Path | None, typer.Option(help="Model directory as Hugging Face lays it out; also starts rollout workers.")
    ] = None
    config: Annotated[Path | None, typer.Option(help="Trainer settings (YAML); also starts a trainer.")] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Rollout workers to start; default: one, or as many as --gpus has room for."),
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="GPUs to deal out among the workers, as nvidia-smi numbers them."),
    ] = None
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel ranks of each worker's engine.")] = 1
    port: Annotated[int, typer.Option(help="Port of the gateway; 0 takes a free one.")] = 8000
    dashboard: ServesDashboard = False
    prefix: Prefix = "claw"
    tls_dir: TlsFolder = None
    device: DeviceOption = "auto"
