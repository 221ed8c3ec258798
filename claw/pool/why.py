"""`claw pool why`: the answers of `claw_r1.datapool.view.why`, for a person or as JSON."""

import orjson

from claw_r1.claw.pool.options import PerspectiveOptions
from claw_r1.claw.pool.reading import named_spec, open_pool
from claw_r1.claw.show.notice import notice
from claw_r1.consumers.pool.perspective import explained, perspective_of


def explain(name: str, options: PerspectiveOptions, *, prefix: str, as_json: bool) -> int:
    """Prints one answer per thing of that id; exit code 1 when there is none. Raises CannotRun."""
    spec = named_spec(options)
    with open_pool(prefix) as pool:
        runs = pool.runs()
        answers, warnings = pool.view.ask(
            lambda rows: explained(
                rows, runs, perspective_of(rows, runs, spec, run_id=options.run, version=options.version), name
            )
        )
    for warning in warnings:
        notice(f"warning: {warning}")
    for answer in answers:
        print(orjson.dumps(answer).decode() if as_json else "\n".join((*answer.lines, f"  → {answer.state}")))
    if not answers:
        print(
            orjson.dumps({"found": False}).decode() if as_json else f"the pool has no group, trajectory or call {name}"
        )
    return 0 if answers else 1
