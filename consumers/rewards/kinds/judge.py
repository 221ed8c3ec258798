"""Generative: a language model that reads a rubric and answers. `use: judge`.

Invariant: a value is the answer of more than half of the judge's votes; every other result is GaveUp with a
reason, and nothing is assumed. Subjects wait for one of `concurrency` places, and their deadline counts from then.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Self

import msgspec
from pydantic import Field, ValidationInfo, field_validator, model_validator

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.http_client import ODD, HttpClient
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings
from claw_r1.consumers.rewards.llm_judge import answers
from claw_r1.consumers.rewards.llm_judge.answers import Merge, MergedAnswer, ParsedAnswer, Unparsable
from claw_r1.consumers.rewards.llm_judge.chat_client import ChatClient, JudgeReply, JudgeTrail
from claw_r1.consumers.rewards.llm_judge.prompts import Question, has_text, questions, reminder, shares_of_wins
from claw_r1.consumers.rewards.llm_judge.quoting import defused
from claw_r1.consumers.rewards.llm_judge.rubrics import Rubric, read_rubric
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion

TOP_LOGPROBS = 20
"""The number of tokens that OpenAI and vLLM list, for soft scores; `body` says otherwise where
a server lists fewer."""
ECHO_CHARACTERS_MAX = 2000
"""The longest part of an unparsable reply that is shown to the judge again."""


class JudgeSettings(ScorerSettings):
    """The settings of one judge."""

    INCIDENTAL: ClassVar[frozenset[str]] = ScorerSettings.INCIDENTAL | {"rubric", "url", "api_key_env", "concurrency"}

    rubric: Path
    """Markdown file with the rubric; a relative path is one from the folder of rewards.yaml."""
    url: str = Field(default="http://127.0.0.1:8000", pattern=r"^https?://")
    """The address of our gateway, or of any OpenAI-compatible server; with or without /v1."""
    model: str
    """The model that judges."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key."""
    temperature: float | None = Field(default=None, ge=0)
    """Without it 0 for one vote, 1 for several, and 1 for `soft`: engines may list probabilities after
    temperature, as ours do."""
    max_tokens: int = Field(default=512, ge=1)
    """The most tokens of a reply, thoughts included."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as chat_template_kwargs: the server's, hence Any."""
    votes: int = Field(default=1, ge=1, le=64)
    """The number of times that each question is asked."""
    merge: Merge = "mean"
    """The way to make one value of the votes: mean, median or majority."""
    soft: bool = False
    """Take the expectation over the probabilities of the allowed answers, not the answer that was sampled."""
    structured: bool = True
    """Hold the server to the form of the answer. Off for models that think first without the server's knowing."""
    asks_max: int = Field(default=3, ge=1, le=10)
    """The number of times that a vote is asked for until its reply parses."""
    opponents_max: int = Field(default=8, ge=1)
    """Scope group: with how many members each is compared. In a larger group, with its neighbours on a ring,
    as many on either side: of an odd number with one less, and with two at least."""
    both_ways: bool = True
    """Scope group: each pair is asked in both orders."""
    show_task: bool = False
    """Show the task with which the trajectory was registered."""
    concurrency: int = Field(default=32, ge=1)
    """Requests, and subjects, at once."""
    characters_max: int = Field(default=200_000, ge=1)
    """The longest question; a longer one is given up as too_long."""

    @field_validator("rubric")
    @classmethod
    def _beside_the_file(cls, rubric: Path, info: ValidationInfo) -> Path:
        return Path((info.context or {}).get("folder", "")) / rubric

    def beside(self) -> bytes:
        """The rubric's text, wherever it lies; nothing where it cannot be read, which is said at opening."""
        try:
            return self.rubric.read_bytes()
        except OSError:
            return b""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.votes > 1 and self.temperature == 0:
            raise ValueError("votes: at temperature 0 they would all be the same")
        return self


class JudgeScorer:
    """One judge, with the loop that it asks on."""

    def __init__(self, settings: JudgeSettings, rubric: Rubric, key: str | None) -> None:
        self._settings, self._rubric = settings, rubric
        authorization = {"authorization": f"Bearer {key}"} if key else {}
        self._http = HttpClient(settings.concurrency)
        self._client = ChatClient(self._http, settings.url, authorization, settings.slot)
        self._free = asyncio.Semaphore(settings.concurrency)
        # Held to a form, an engine may list what is left of the probabilities, and nobody sees what was missing.
        self._structure = answers.structure(rubric) if settings.structured and not settings.soft else {}

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """Judges like every RewardScorer."""
        return [self._http.submit(self._opinion(subject)) for subject in subjects]

    def close(self) -> None:
        """Closes like every RewardScorer; pending requests are cancelled."""
        self._http.close()

    async def _opinion(self, subject: Judged) -> Opinion:
        posed = self._questions(subject)
        async with self._free:
            trail = JudgeTrail(self._trajectory_id(subject, posed), time.monotonic() + self._settings.timeout_s)
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(self._settle(trail, question)) for question in posed]
            except BaseExceptionGroup as failures:  # the first has ended the others
                failure = failures.exceptions[0]
                if not isinstance(failure, GaveUp):
                    raise
                detail = " ".join(filter(None, (failure.detail, trail.cost.remark)))
                raise GaveUp(failure.reason, detail, tokens=trail.cost.tokens, calls=tuple(trail.calls)) from failure
        return self._of(subject, posed, [task.result() for task in running], trail)

    def _questions(self, subject: Judged) -> list[Question]:
        """Raises GaveUp where they cannot be asked."""
        s = self._settings
        if not has_text(subject):
            raise GaveUp("text_lost", "nothing of its reply can be read")
        try:
            posed = questions(
                subject, self._rubric, opponents_max=s.opponents_max, both_ways=s.both_ways, task=s.show_task
            )
        except ODD as error:
            raise GaveUp("unreadable", f"the conversation is no text: {error}") from error
        longest = max((len(question.messages[-1]["content"]) for question in posed), default=0)
        if longest > s.characters_max:
            raise GaveUp("too_long", f"{longest:,} characters, above characters_max {s.characters_max:,}")
        return posed

    def _trajectory_id(self, subject: Judged, posed: list[Question]) -> str:
        """Equal for one subject and generation (judged again); outside its group: calls about one are no members."""
        names = (
            self._settings.generation,
            subject.group_id,
            subject.trajectory_id,
            *(call.call_id for call in subject.calls),
        )
        digest = hashlib.sha256(repr((names, posed)).encode("utf-8", "surrogatepass")).hexdigest()
        return f"judge-{self._settings.source}-{self._settings.name}@{self._settings.version}-{digest[:32]}"[-256:]

    async def _settle(self, trail: JudgeTrail, question: Question) -> MergedAnswer:
        """Raises GaveUp unless more than half of the votes could be had."""
        votes = self._settings.votes
        tries = await asyncio.gather(
            *(self._vote(trail, question, number) for number in range(votes)), return_exceptions=True
        )
        if bug := next((one for one in tries if isinstance(one, BaseException) and not isinstance(one, GaveUp)), None):
            raise bug
        cast = [one for one in tries if isinstance(one, ParsedAnswer)]
        if 2 * len(cast) <= votes:
            raise next(one for one in tries if isinstance(one, GaveUp))
        return answers.merged(cast, self._settings.merge)

    async def _vote(self, trail: JudgeTrail, question: Question, number: int) -> ParsedAnswer:
        """Raises GaveUp."""
        messages, problem = question.messages, ""
        for ask in range(self._settings.asks_max):
            body = self._body(messages)
            content = hashlib.sha256(msgspec.json.encode(body)).hexdigest()[:16]  # a key is for one body
            key = f"{question.key}.{number}.{ask}.{content}"
            reply = await self._client.chat(trail, key, body, self._structure)
            try:
                return self._read(reply)
            except Unparsable as error:
                problem = str(error)
            except ODD as error:
                raise GaveUp("not_json", f"its log-probabilities are none: {error!r}") from error
            echo = defused(answers.without_thought(reply.text)[:ECHO_CHARACTERS_MAX])
            again = f"That is no answer: {problem} {reminder(self._rubric)}"
            messages = [
                *question.messages,
                {"role": "assistant", "content": echo},
                {"role": "user", "content": again},
            ]
        raise GaveUp("unparsable", f"asked {self._settings.asks_max} times: {problem}")

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        s = self._settings
        temperature = s.temperature if s.temperature is not None else float(s.soft or s.votes > 1)
        logprobs = {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if s.soft else {}
        limits = {"temperature": temperature, "max_tokens": s.max_tokens}
        return {"model": s.model, **limits, **logprobs, **s.body, "messages": messages}

    def _read(self, reply: JudgeReply) -> ParsedAnswer:
        """Raises Unparsable, GaveUp."""
        if not self._settings.soft:
            return answers.parsed(self._rubric, reply.text)
        if not reply.tokens:
            raise GaveUp("no_logprobs", "soft needs log-probabilities, and the server sent none")
        return answers.soft(self._rubric, reply.tokens)

    def _of(self, subject: Judged, posed: list[Question], settled: list[MergedAnswer], trail: JudgeTrail) -> Opinion:
        raw: list[float | None] = [one.value for one in settled]
        if subject.scope == "group":
            pairs = [question.pair for question in posed if question.pair is not None]
            raw = shares_of_wins(pairs, [one.value for one in settled], len(subject.members))
        spreads = [one.spread for one in settled if one.spread is not None]
        return Opinion(
            values=tuple(raw),
            detail=self._detail(settled, trail),
            spread=fmean(spreads) if spreads else None,
            tokens=trail.cost.tokens,
            calls=tuple(trail.calls),
        )

    def _detail(self, settled: list[MergedAnswer], trail: JudgeTrail) -> str:
        lost = self._settings.votes * len(settled) - sum(one.votes for one in settled)
        missing = max((one.missing for one in settled), default=0.0)
        words = [one.reasons for one in settled if one.reasons]
        words += [f"{lost} votes could not be had"] if lost else []
        words += [f"probability of no allowed answer: up to {missing:.2g}"] if self._settings.soft and settled else []
        return " ".join(filter(None, (*words, trail.cost.remark)))


def open_judge(settings: JudgeSettings) -> JudgeScorer:
    """Raises ConsumerError for a rubric that is none, or that does not fit the rest."""
    rubric = read_rubric(settings.rubric)
    if (settings.scope == "group") != (rubric.answer == "pair"):
        raise ConsumerError(f"{settings.slot}: scope group needs a rubric with answer: pair, and no other scope does")
    try:
        for example in rubric.examples if rubric.answer != "json" else ():  # of which an example may show a part
            answers.parsed(rubric, example.answer)
    except Unparsable as error:
        raise ConsumerError(f"rubric {settings.rubric}: an example has no answer of the form: {error}") from error
    words = [word.casefold() for word in rubric.options]
    if settings.soft and not words:
        raise ConsumerError(f"{settings.slot}: soft needs a rubric with answer: choice or pair")
    if settings.soft and any(a != b and b.startswith(a) for a in words for b in words):
        raise ConsumerError(f"{settings.slot}: soft needs choices of which none begins another, as 1 begins 10")
    key = os.environ.get(settings.api_key_env) if settings.api_key_env else None
    if settings.api_key_env and not key:
        raise ConsumerError(f"{settings.slot}: the environment variable {settings.api_key_env} holds no key")
    return JudgeScorer(settings, rubric, key)


KIND = Kind(JudgeSettings, open_judge)
