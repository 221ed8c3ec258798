"""Programs of Debian's packages that tests need, unpacked below `.tools/` by a script of infra/ where the machine has none."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNPACK_TIMEOUT_S = 400


def unpacked(script: str) -> str:
    """The program's path, which the script prints. Raises FileNotFoundError with the reason where there is none."""
    try:
        done = subprocess.run([ROOT / "infra" / script], capture_output=True, text=True, timeout=UNPACK_TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        raise FileNotFoundError("Debian's mirror did not answer in time") from late
    if done.returncode:
        raise FileNotFoundError((done.stderr.strip().splitlines() or ["no reason"])[-1])
    return done.stdout.strip()
