"""Rubrics as files: Markdown, whose front matter is the rubric's fields and whose body its instructions."""

from pathlib import Path

import yaml
from pydantic import ValidationError

from consumers.errors import ConsumerError
from consumers.rewards.judging.answers import Unparsable, parsed
from consumers.rewards.judging.rubrics import Rubric


def read_rubric(path: Path) -> Rubric:
    """Raises ConsumerError, in one line, for a file that is missing or no rubric."""
    try:
        rubric = Rubric.model_validate(_fields(path.read_text(encoding="utf-8")))
        for example in rubric.examples:
            if rubric.answer != "json":  # of which an example may show a part
                parsed(rubric, example.answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")
        raise ConsumerError(f"rubric {path}: {problem}") from error
    except Unparsable as error:
        raise ConsumerError(f"rubric {path}: an example has no answer of the form: {error}") from error
    except (OSError, ValueError) as error:
        raise ConsumerError(f"rubric {path}: {' '.join(str(error).split())}") from error
    return rubric


def _fields(text: str) -> dict[str, object]:
    """Raises ValueError for what has no front matter."""
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if len(ends) < 2 or ends[0] != 0:
        raise ValueError("it must begin with front matter between two lines of ---")
    try:
        fields = yaml.safe_load("\n".join(lines[1 : ends[1]]))
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("its front matter must be fields, such as answer and scale")
    body = "\n".join(lines[ends[1] + 1 :]).strip()
    if not body:
        raise ValueError("it has no body: nothing says what to judge")
    if "instructions" in fields:
        raise ValueError("instructions: they are the body, not a field")
    return {**fields, "instructions": body}
