"""The commands that show one thing: a trajectory, versions, the state of this machine."""

from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import PASS_ON, Commands, GenerationOption, Prefix
from claw_r1.claw.panels import DATA, OPERATORS

show = Commands()
BeforeOption = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="VERSION|FILE", help="The release that runs now, or the output of its `claw upgrade`."
    ),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--tls-certificate-file", help="PEM file of its certificate: it then takes https only."),
]
CertificateKeyOption = Annotated[
    Path | None, typer.Option("--tls-key-file", help="PEM file of the key, where it is another file.")
]


@show.command(rich_help_panel=DATA)
def inspect(
    trajectory: Annotated[
        str,
        typer.Argument(metavar="[GROUP/]TRAJECTORY", help="As in the reply's headers x-claw-group, x-claw-trajectory."),
    ],
    group: Annotated[str | None, typer.Option(help="Group, where several have a trajectory of this name.")] = None,
    prefix: Prefix = "claw",
) -> Answers:
    """Show one trajectory: its state, its calls with versions and rewards, and the conversation."""
    from claw_r1.claw.show import inspect

    return inspect.inspect(trajectory, group, prefix=prefix)


@show.command(rich_help_panel=OPERATORS)
def version() -> Answers:
    """Say which version this is: of the package, of the newest schema of an event, of the folds that make the pool."""
    import json
    from importlib import metadata

    from claw_r1.claw.answers import Answer
    from claw_r1.datapool import FOLD_VERSION
    from claw_r1.schemas.avro_files import IDS_FILE

    versions = {
        "package": metadata.version("claw-r1"),
        "schemas": max(map(int, json.loads(IDS_FILE.read_text()))),
        "fold": FOLD_VERSION,
    }
    return Answer(versions, [f"{name:<8} {value}" for name, value in versions.items()])


@show.command(rich_help_panel=OPERATORS)
def upgrade(
    check: Annotated[bool, typer.Option("--check", help="Compare with another version's own description.")] = False,
    before: BeforeOption = None,
) -> Answers:
    """Say what stands between another version and this one: schemas, folds, topics, settings, the order of restarts."""
    from claw_r1.claw.errors import CannotRun
    from claw_r1.claw.show import upgrade

    if not check:
        return upgrade.record_answer()
    if before is None:
        raise CannotRun("claw upgrade --check: --from names a release, or what its `claw upgrade` printed")
    return upgrade.check(before)


@show.command(rich_help_panel=OPERATORS)
def doctor(prefix: Prefix = "claw") -> Answers:
    """Check this machine and the broker; exit 1 when something would not hold."""
    from claw_r1.claw.show.doctor.command import run_doctor

    return run_doctor(prefix=prefix)


@show.command(rich_help_panel=DATA)
def registry(
    host: Annotated[
        str, typer.Option(help="Address to listen on; anybody who reaches it can read the schemas.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8081,
    prefix: Prefix = "claw",
    generation: GenerationOption = 1,
    certificate: CertificateOption = None,
    key: CertificateKeyOption = None,
    export: Annotated[
        bool,
        typer.Option("--export", help="Serve nothing: print each version as JSON, for a registry in IMPORT mode."),
    ] = False,
) -> int:
    """Serve the schemas as a read-only schema registry for Kafka tools (docs/analytics.md); a gateway does it under /registry."""
    from claw_r1.claw.show.registry import export_registry, run_registry
    from claw_r1.runtime.tls.doors import DoorTls
    from claw_r1.schemas.topics import Catalogue

    catalogue = Catalogue(prefix=prefix, generation=generation)
    if export:
        return export_registry(catalogue)
    return run_registry(host, port, catalogue, DoorTls(tls_certificate_file=certificate, tls_key_file=key))


@show.command(rich_help_panel=DATA, context_settings=PASS_ON)
def dashboard(context: typer.Context) -> int:
    """Show the pool and the runs on a page, live, beside whatever runs (`claw dashboard --help`)."""
    from claw_r1.claw.show.dashboard import run_dashboard

    return run_dashboard(context.args)


@show.command(rich_help_panel=DATA, context_settings=PASS_ON)
def feedback(context: typer.Context) -> int:
    """Judge what agents did: the dashboard, from its Curation on (`claw dashboard --help`)."""
    from claw_r1.claw.show.dashboard import run_dashboard

    return run_dashboard(["--view", "curation", *context.args])
