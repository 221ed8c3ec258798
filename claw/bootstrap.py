"""From a fresh clone to a running `claw`, with nothing but a Python: `python3 claw/bootstrap.py demo|test|setup|check [args]`.

Everything that could stop the setup is checked before anything is downloaded. `.venv/claw-stamp` is written last and names
exactly what was installed, so an install is whole (then the next start is instant) or is done again. Standard library only,
and the top of this file must parse under old Pythons, to tell them what is needed.
"""

import os
import shutil
import subprocess
import sys

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHONS = ("python3.11", "python3.12")
USAGE = """usage: python3 claw/bootstrap.py demo  [claw demo's arguments]   set up, then run the demo
       python3 claw/bootstrap.py test  [pytest's arguments]      set up, then run the tests
       python3 claw/bootstrap.py setup [--gpu | --light]         set up only; --gpu: with vLLM's CUDA build;
                                                                 --light: gateway, streams and Kafka, no torch
       python3 claw/bootstrap.py check                           check this machine, download nothing"""


def fail(message: str) -> None:
    """Ends the program with one line and exit code 2."""
    sys.stderr.write("claw setup: " + message + "\n")
    sys.exit(2)


def use_supported_python() -> None:
    """Continues under Python 3.11 or 3.12: this one, or another on PATH (a name there may be a shim that runs nothing)."""
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return
    for name in PYTHONS:
        path = shutil.which(name)
        if path and subprocess.call([path, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            sys.stdout.flush()
            os.execv(path, [path, os.path.abspath(__file__)] + sys.argv[1:])
    fail(
        "needs Python 3.11 or 3.12; this is %d.%d and neither python3.11 nor python3.12 is on PATH: install one"
        % sys.version_info[:2]
    )


if __name__ == "__main__":
    use_supported_python()
    # Not the script's own folder, whose files would shadow other modules: the project's (infra), and that of `claw_r1`.
    sys.path[:1] = [PROJECT, os.path.join(PROJECT, "infra", "python")]
    from claw_r1.claw.install.steps import main

    sys.exit(main(sys.argv[1:], USAGE))
