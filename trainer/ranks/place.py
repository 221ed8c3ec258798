"""The rank of this process among others, as its launcher sets it in the environment. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from claw_r1.trainer.errors import SettingsInvalid

RENDEZVOUS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""The variables that torchrun and deepspeed set for each process, and `launch.py` sets likewise."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of one process among `size` ranks. `local_rank`: among those of its machine. All meet at the store on
    `address`:`port`.

    `listener`: descriptor of the socket, already bound, on which rank 0 serves that store; None: it binds one itself.
    `joins_store`: the launcher serves the store, so rank 0 does not. `attempt`: how often the launcher started all again.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    address: str = ""
    port: int = 0
    listener: int | None = None
    joins_store: bool = False
    attempt: str = "0"

    @property
    def scope(self) -> str:
        """The part of the store that is this attempt's."""
        return f"claw-{self.attempt}"


def of(values: Mapping[str, str], ranks: int) -> RankPlace | None:
    """The place that a launcher gave this process; None: there is no launcher, and `ranks` processes are to be started.

    values: the environment. Raises SettingsInvalid for half a place.
    """
    size = values.get("WORLD_SIZE", "1")
    if size == "1":
        return None
    if absent := [name for name in RENDEZVOUS if name not in values]:
        raise SettingsInvalid(
            f"WORLD_SIZE is {size} but {', '.join(absent)} not set: start all ranks with --ranks {size}, torchrun or "
            "deepspeed, or unset WORLD_SIZE"
        )
    rank, world, local, port = (int(values[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"))
    if ranks not in (1, world):
        raise SettingsInvalid(f"ranks is {ranks}, but the launcher started {world}; drop one of the two")
    return RankPlace(
        rank,
        world,
        local,
        values["MASTER_ADDR"],
        port,
        joins_store=values.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=values.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )
