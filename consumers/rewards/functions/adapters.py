"""Functions that people have: TRL's and verl's reward functions, called with one subject. Pure
but for the function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, isawaitable, signature
from typing import Any

from claw_r1.consumers.rewards.judged import Judged, JudgedMessage
from claw_r1.consumers.rewards.verdict import Verdict

Rule = Callable[[Judged], Any]


@dataclass(frozen=True, slots=True)
class Adapter:
    """The way to call the functions of one library."""

    parameters: tuple[str, ...]
    """The parameters that a function of the library must take by name."""
    scopes: tuple[str, ...]
    adapt: Callable[[Callable[..., Any], bool], Rule]
    """The function, and whether it wants text instead of messages."""
    absent: tuple[str, ...] = ()
    """The parameters that the library supplies and nobody does here: a function that cannot
    do without is refused."""


def trl(function: Callable[..., Any], as_text: bool) -> Rule:
    """`f(prompts, completions, **columns) -> list[float | None]`: as TRL's trainers call it, with a batch of one, or a group.

    Columns are the fields of task and metadata. TRL's other arguments (token ids, the trainer's state) are missing.
    """
    parameters = signature(function).parameters
    takes_all = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())

    async def awaited(values: Any) -> Any:
        return await values

    def rule(judged: Judged) -> Any:
        members = judged.members if judged.scope == "group" else (judged,)
        turns = [_turn(member, as_text) for member in members]
        tables = [columns(member) for member in members]
        names = {name for table in tables for name in table if takes_all or name in parameters}
        extra = {name: [table.get(name) for table in tables] for name in sorted(names - {"prompts", "completions"})}
        returned = function(prompts=[prompt for prompt, _ in turns], completions=[reply for _, reply in turns], **extra)
        return awaited(returned) if isawaitable(returned) else returned

    return rule


def verl(function: Callable[..., Any], _: bool) -> Rule:
    """`compute_score(data_source, solution_str, ground_truth, extra_info)` -> number or a dict with `score`.

    From the task's fields, as verl's data sets have them: data_source, ground_truth (or reward_model.ground_truth), extra_info.
    """

    def one(judged: Judged) -> Any:
        fields = columns(judged)
        model = fields.get("reward_model")
        nested = model.get("ground_truth") if isinstance(model, Mapping) else None
        returned = function(
            data_source=fields.get("data_source"),
            solution_str=last_text(judged),
            ground_truth=fields.get("ground_truth", nested),
            extra_info=fields.get("extra_info"),
        )
        if not isinstance(returned, Mapping):
            return returned
        detail = ", ".join(f"{name}: {value}" for name, value in returned.items() if name != "score")
        return Verdict(returned["score"], detail)

    def rule(judged: Judged) -> Any:
        if judged.scope != "group":
            return one(judged)
        verdicts = [one(member) for member in judged.members]
        return [verdict.value if isinstance(verdict, Verdict) else verdict for verdict in verdicts]

    return rule


def columns(judged: Judged) -> dict[str, Any]:
    """Returns the columns of a data set's row: the fields of metadata and task (the task wins)."""
    tables = [table for table in (judged.metadata, judged.task) if isinstance(table, Mapping)]
    return {str(name): value for table in tables for name, value in table.items()}


def text_of(message: JudgedMessage | None) -> str:
    """A message's text: its content, or the text parts of it."""
    content = message.get("content") if message else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def last_text(judged: Judged) -> str:
    """Returns the text of the last reply; empty where there is none."""
    return text_of(judged.calls[-1].reply) if judged.calls else ""


def _turn(judged: Judged, as_text: bool) -> tuple[Any, Any]:
    """Prompt and completion: up to the first reply, and from there on; of one call its question and its reply."""
    last = judged.calls[-1] if judged.calls else None
    if judged.scope in ("call", "next") and last:
        prompt, reply = list(last.messages), [last.reply] if last.reply else []
    else:
        whole = list(judged.conversation)
        roles = [message.get("role") for message in whole]
        first = roles.index("assistant") if "assistant" in roles else len(whole)
        prompt, reply = whole[:first], whole[first:]
    if not as_text:
        return prompt, reply
    return (text_of(prompt[-1]) if prompt else ""), last_text(judged)


TRAINERS_OWN = ("completion_ids", "trainer_state")
ADAPTERS = {
    "trl": Adapter(("prompts", "completions"), ("call", "next", "trajectory", "group"), trl, TRAINERS_OWN),
    "verl": Adapter(
        ("data_source", "solution_str", "ground_truth", "extra_info"), ("call", "next", "trajectory", "group"), verl
    ),
}
"""Word before the function in `use`."""
