"""What a page says when it cannot answer, and that every answer is JSON that a browser reads."""

import json
import math

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from claw_r1.consumers.web.problems import SafeJson, answer_problems
from claw_r1.eventlog.errors import AccessRefused, LogError


@pytest.mark.parametrize(("method", "writes"), [("GET", False), ("POST", True)])
def test_a_log_that_does_not_answer_is_said_of_what_was_asked(method: str, writes: bool) -> None:
    """A read wrote nothing; of a write that timed out nobody knows whether it was written, and the page says just that."""
    app = FastAPI()
    answer_problems(app)

    @app.api_route("/", methods=["GET", "POST"])
    def away() -> None:
        raise LogError("no broker")

    answer = TestClient(app).request(method, "/")
    assert answer.status_code == 503
    assert ("written" in answer.json()["detail"]) == writes
    assert ("look, then say it again" in answer.json()["detail"]) == writes


def test_a_log_that_refuses_is_not_one_that_is_silent() -> None:
    """Who reads that the log does not answer looks after the broker, and not after the page's user."""
    app = FastAPI()
    answer_problems(app)

    @app.get("/")
    def refused() -> None:
        raise AccessRefused("the user may not")

    assert TestClient(app).get("/").json()["detail"] == "the log refuses this page: the user may not"


def test_numbers_that_json_has_not_are_null_wherever_they_stand() -> None:
    """One row with such a number must not make the whole list a fault."""
    rows = {"rows": [{"return": math.inf, "of": (math.nan, -math.inf, 0.5)}], "total": 1}
    assert json.loads(bytes(SafeJson(rows).body)) == {"rows": [{"return": None, "of": [None, None, 0.5]}], "total": 1}
