"""One tiny model for the tests of a module."""

import pytest


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    from tests.trainer.tiny import make_model  # which loads transformers

    return make_model(tmp_path_factory.mktemp("model") / "tiny")
