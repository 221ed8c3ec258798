"""What every process writes to stderr."""

import json
import subprocess
import sys

CODE = """
import structlog
from schemas.logs import log_to_stderr
log_to_stderr()
log = structlog.get_logger()
log.debug("hidden")
secret_prompt = "do not show"
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken", count=3)
print("result")
"""


def test_a_log_line_is_json_and_a_traceback_shows_no_locals() -> None:
    """stdout has the result alone; stderr one JSON object per event, without what variables held."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "result\n"
    event = json.loads(done.stderr)
    assert (event["event"], event["level"], event["count"]) == ("broken", "error", 3)
    assert "ZeroDivisionError" in event["exception"]
    assert "do not show" not in done.stderr
