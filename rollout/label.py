"""The weight label inside vLLM, `<run_id>/<version>`: what every sampled token is stamped with."""

BASE = "base/0"


def label_of(run_id: str, version: int) -> str:
    """The label of a published version."""
    return f"{run_id}/{version}"
