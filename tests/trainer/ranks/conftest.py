"""Two ranks for all tests that do not kill them."""

import pytest

from tests.trainer.ranks.crew import Walk


@pytest.fixture(scope="session")
def walk(tmp_path_factory):
    """See `Walk`; started by the first test that has a job for them."""
    subject = Walk(tmp_path_factory.mktemp("walk"))
    yield subject
    subject.end()
