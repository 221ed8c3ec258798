"""The address on which a run offers its weights, checked before anything is started."""

from typing import TYPE_CHECKING

from claw_r1.runtime.tls.pem import TlsRefused, weights_files
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.weights.errors import SecretMissing
from claw_r1.weights.sources import check_secret

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings


def check(settings: "TrainerSettings") -> None:
    """Raises SettingsInvalid in one line where weights would be open to everybody, or its certificate cannot be used."""
    try:
        check_secret(settings.offer_host)
        weights_files()
    except (SecretMissing, TlsRefused) as error:
        raise SettingsInvalid(f"offer_host: {error}") from error
