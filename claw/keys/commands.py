"""The commands of `claw keys`. Each only hands its arguments to a function of this folder."""

from typing import Annotated, Literal

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, Prefix

keys = Commands(
    name="keys",
    help="Make API keys for the gateway, list them, replace and revoke them.",
)
KeyArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name to recognise the key by.")]
RoleOption = Annotated[
    Literal["agent", "annotator", "reader", "operator"],
    typer.Option(help="Its role: docs/gateway.md has the table."),
]
ScopeOption = Annotated[
    str | None, typer.Option(help="Its sessions are trajectories SCOPE/…, and it reaches no others.")
]
AliasOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=MODEL",
        help="Requested and served model: 'claude-*=tiny', weak=tiny:side (side calls).",
    ),
]
SamplingOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A sampling parameter that wins over the client's: temperature=1."),
]
StripOption = Annotated[
    bool,
    typer.Option("--strip-strict", help="Take `strict` out of tools, so that no grammar shapes samples."),
]
IdleOption = Annotated[
    float | None,
    typer.Option(min=0.001, max=1e9, help="Its sessions end after so many silent seconds; it reaches no others."),
]


@keys.command()
def create(
    name: KeyArgument,
    role: RoleOption = "agent",
    expires_in: Annotated[str | None, typer.Option(metavar="TIME", help="12h, 30d, …; not set: never.")] = None,
    scope: ScopeOption = None,
    alias: AliasOption = None,
    sampling: SamplingOption = None,
    strip_strict: StripOption = False,
    idle_s: IdleOption = None,
    prefix: Prefix = "claw",
) -> Answers:
    """Make a key, print it once; its hash goes into the log, and every gateway takes it."""
    from claw_r1.claw.keys.acts import run_create
    from claw_r1.claw.keys.records import PRODUCER
    from claw_r1.claw.keys.terms import aliases_of, checked_word, duration_us, sampling_of
    from claw_r1.schemas.envelopes import envelope, now_us
    from claw_r1.schemas.events import KeyRecorded

    key = KeyRecorded(
        envelope=envelope(PRODUCER),
        digest="",
        name=checked_word(name, "NAME"),
        role=role,
        expires_us=None if expires_in is None else now_us() + duration_us(expires_in),
        scope=None if scope is None else checked_word(scope, "--scope"),
        aliases=aliases_of(alias or ()),
        sampling=sampling_of(sampling or ()),
        strip_strict=strip_strict,
        idle_s=idle_s,
    )
    return run_create(key, prefix=prefix)


@keys.command("list")
def list_(prefix: Prefix = "claw") -> Answers:
    """List all keys: name, role, the beginning of the hash, end, scope, state. No key itself: nobody has it but its owner."""
    from claw_r1.claw.keys.acts import run_list

    return run_list(prefix=prefix)


@keys.command()
def rotate(
    name: KeyArgument,
    overlap: Annotated[str, typer.Option(metavar="TIME", help="How long the old key stays valid.")] = "1h",
    prefix: Prefix = "claw",
) -> Answers:
    """Make a new key of the same fields and print it once; the old one ends after the overlap."""
    from claw_r1.claw.keys.acts import run_rotate
    from claw_r1.claw.keys.terms import duration_us

    return run_rotate(name, duration_us(overlap), prefix=prefix)


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME|HASH", help="All keys of a name, or one by its listed hash.")],
    prefix: Prefix = "claw",
) -> Answers:
    """Take keys back: no gateway lets them in two seconds from then."""
    from claw_r1.claw.keys.acts import run_revoke

    return run_revoke(name, prefix=prefix)
