"""Which rank a process is, whoever started it."""

import pytest

from claw_r1.trainer import settings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.ranks import place
from claw_r1.trainer.ranks.member import check_devices
from claw_r1.trainer.ranks.place import RankPlace

COMPLETE = ["--model-dir", "model", "--model-id", "tiny", "--run-id", "r", "--out-dir", "out"]
LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_a_launcher_says_it_in_the_environment():
    """As torchrun and deepspeed do; torchrun serves the store itself and counts its starts."""
    assert place.of(LAUNCHED, 1) == RankPlace(1, 2, 1, "host", 29500)
    elastic = {**LAUNCHED, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3"}
    assert place.of(elastic, 2) == RankPlace(1, 2, 1, "host", 29500, joins_store=True, attempt="3")


def test_without_a_launcher_there_is_no_place():
    """One rank of a launcher is none either."""
    assert place.of({}, 4) is None
    assert place.of({**LAUNCHED, "WORLD_SIZE": "1", "RANK": "0"}, 1) is None


def test_what_contradicts_is_refused_in_one_line():
    """Half a place, and a number of ranks beside another of the launcher."""
    half = {name: value for name, value in LAUNCHED.items() if name != "MASTER_PORT"}
    with pytest.raises(SettingsInvalid, match=r"^WORLD_SIZE is 2 but MASTER_PORT not set"):
        place.of(half, 1)
    with pytest.raises(SettingsInvalid, match=r"^ranks is 3, but the launcher started 2"):
        place.of(LAUNCHED, 3)


def test_the_flag_of_deepspeeds_launcher_is_taken():
    """It appends --local_rank=N to what it starts."""
    assert settings.load([*COMPLETE, "--local_rank=1", "--ranks", "2"]).ranks == 2


def test_more_ranks_than_devices_are_refused():
    """By rank 0 before anything is joined, where it started the others itself."""
    with pytest.raises(SettingsInvalid, match=r"^4 ranks are more than the 2 CUDA devices here"):
        check_devices(RankPlace(0, 4, 0, "host", 1, listener=3), 2)
    check_devices(RankPlace(1, 4, 1, "host", 1), 2)  # two machines
