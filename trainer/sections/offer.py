"""The address on which a run offers its weights, checked before anything is started."""

from typing import TYPE_CHECKING

from trainer.errors import SettingsInvalid
from weights.errors import SecretMissing
from weights.sources import check_secret

if TYPE_CHECKING:
    from trainer.settings import TrainerSettings


def check(settings: "TrainerSettings") -> None:
    """Raises SettingsInvalid in one line where weights would be open to everybody."""
    try:
        check_secret(settings.offer_host)
    except SecretMissing as error:
        raise SettingsInvalid(f"offer_host: {error}") from error
