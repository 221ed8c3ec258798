"""`claw pool why`: the answers of `claw_r1.datapool.view.why`, for a person or as JSON."""

from collections.abc import Iterator

from claw_r1.claw.answers import Answer
from claw_r1.claw.notice import notice
from claw_r1.claw.pool.options import PerspectiveOptions
from claw_r1.claw.pool.reading import named_spec, open_pool
from claw_r1.consumers.pool.perspective import explained, perspective_of


def explain(name: str, options: PerspectiveOptions, *, prefix: str) -> Iterator[Answer]:
    """Yields one answer per thing of that id; exit code 1 when there is none. Raises CannotRun."""
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
        yield Answer(answer, (*answer.lines, f"  → {answer.state}"))
    if not answers:
        yield Answer({"found": False}, f"the pool has no group, trajectory or call {name}", 1)
