"""`claw pool why`: the answers of `datapool.view.why`, for a person or as JSON."""

from dataclasses import asdict
from pathlib import Path

import orjson

from claw.pool.reading import asked_of, named_spec, open_pool
from datapool.view.why import why


def explain(
    name: str,
    *,
    spec_file: Path | None,
    preset: str | None,
    run_id: str | None,
    version: int | None,
    prefix: str,
    as_json: bool,
) -> int:
    """Prints one answer per thing of that id; exit code 1 when there is none. Raises CannotRun."""
    spec = named_spec(spec_file, preset)
    with open_pool(prefix) as pool:
        runs = pool.runs()
        asked = asked_of(pool, runs, spec, run_id=run_id, version=version)
        answers = pool.view.ask(lambda rows: why(rows, runs, asked, name))
    for answer in answers:
        print(orjson.dumps(asdict(answer)).decode() if as_json else "\n".join((*answer.lines, f"  → {answer.state}")))
    if not answers:
        print(
            orjson.dumps({"found": False}).decode() if as_json else f"the pool has no group, trajectory or call {name}"
        )
    return 0 if answers else 1
