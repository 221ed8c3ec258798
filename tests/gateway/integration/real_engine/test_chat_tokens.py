"""Calls by token ids before a real vLLM, and an episode that is played by tokens beside one that is played by chat."""

import re
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from msgspec.structs import replace

from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import load_flow
from claw_r1.datapool.batch.sequences import call_tokens, rows
from claw_r1.datapool.delta_decoding import prompts
from claw_r1.schemas.arrays import count, unpack_ids
from claw_r1.schemas.events import CallCaptured, StepRecord, VersionSpan
from tests.gateway.engine import Json
from tests.gateway.house import House
from tests.gateway.integration.test_conversations import folded
from tests.lazy_modules import lazy_module

if TYPE_CHECKING:
    import openai
else:
    openai = lazy_module("openai")

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture
def real(vllm: str) -> Iterator[House]:
    """A gateway whose worker hands its tokens over: completions are exact with such a one only."""
    with House() as running:
        running.worker(vllm, model="policy")
        yield running


ASK: Json = {"model": "policy", "prompt": [70, 71, 72], "max_tokens": 8, "temperature": 0}
WISHES: dict[str, Json] = {
    "plain": {},
    "log-probabilities": {"logprobs": 2},
    "token ids": {"return_token_ids": True, "stream_options": None},
    "both, and choices": {"return_token_ids": True, "logprobs": 0, "n": 2, "temperature": 0.9, "seed": 5},
    "a text": {"prompt": "hello world", "max_tokens": None},
    "the prompt's log-probabilities": {"prompt_logprobs": 0},
}


def post(url: str, ask: Json) -> bytes:
    """What the engine, or the gateway, answers, without what differs from call to call."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", orjson.dumps(ask), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return re.sub(rb'("id":"cmpl-|"created":)[^",]*', rb"\g<1>1", reply.read())


@pytest.mark.parametrize("name", WISHES)
def test_client_sees_what_the_engine_sends_it(real: House, vllm: str, name: str) -> None:
    """Direct or through the gateway: the same bytes, apart from id and time; the log has all of the tokens."""
    ask = {**ASK, **WISHES[name]}
    direct, through = (post(url, ask) for url in (vllm, f"{real.url}/t/g"))
    assert through == direct
    assert len(real.captured) == len(orjson.loads(direct)["choices"]) == ask.get("n", 1)
    for event in real.captured:
        assert event.integrity.complete, event.integrity
        assert 0 < count(event.response_ids) <= (ask["max_tokens"] or 16)
        assert event.spans == (VersionSpan(run_id="run", version=7, start=0, end=count(event.response_ids)),)


def said(stream: bytes) -> tuple[Any, ...]:
    """Text, tokens and ids of a stream, put together, and the kinds of its chunks by their members."""
    data = [event[6:] for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    choices = [choice for chunk in data for choice in orjson.loads(chunk)["choices"]]
    logprobs = [choice["logprobs"] or {"tokens": [], "token_logprobs": []} for choice in choices]
    return (
        "".join(choice["text"] for choice in choices),
        [token for lists in logprobs for token in lists["tokens"]],
        [round(value, 3) for lists in logprobs for value in lists["token_logprobs"]],
        [one for choice in choices for one in choice["token_ids"] or ()],
        choices[0]["prompt_token_ids"],
        {tuple(choice) for choice in choices},
        stream.endswith(b"data: [DONE]\n\n"),
    )


@pytest.mark.parametrize("wishes", [{}, {"logprobs": 1}, {"return_token_ids": True}])
def test_streams_say_what_the_engine_says(real: House, vllm: str, wishes: Json) -> None:
    """The same words in chunks of the same members; the clock decides how many tokens a chunk holds."""
    ask = {**ASK, **wishes, "stream": True, "max_tokens": 20, "stream_options": {"include_usage": True}}
    direct, through = (post(url, ask) for url in (vllm, f"{real.url}/t/g"))
    assert said(through) == said(direct)
    (event,) = real.captured
    assert event.integrity.complete, event.integrity
    assert event.usage.completion_tokens == count(event.response_ids) > 0


async def test_the_sdk_and_the_engines_refusals(real: House) -> None:
    """OpenAI's own client speaks it, and hears what vLLM refuses; a beam is stored and cannot be trained."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x", max_retries=0) as client:
        reply = await client.completions.create(model="policy", prompt=[70, 71], max_tokens=4)
        assert reply.usage is not None
        assert count(real.captured[0].response_ids) == reply.usage.completion_tokens
        with pytest.raises(openai.BadRequestError, match="vocab"):
            await client.completions.create(model="policy", prompt=[99_999], max_tokens=4)
        await client.completions.create(
            model="policy", prompt=[70, 71], max_tokens=2, temperature=0, extra_body={"use_beam_search": True}
        )
    assert [failure.reason for failure in real.failed] == ["refused"]
    assert "beam_search" in real.captured[1].integrity.missing


TURNS = 4
SAMPLING = {"temperature": 1.0, "max_tokens": 3}
SAYS = "Go on."


@dataclass
class Player:
    """Plays a conversation of turns by chat, or by tokens with the model's template written out."""

    tokenizer: Any  # transformers' classes are untyped here
    seeds: list[int] = field(default_factory=list)
    """Of each turn, so that both ways sample the same as long as they ask the same."""

    async def by_chat(self, episode: Episode) -> None:
        messages = [{"role": "user", "content": SAYS}]
        for seed in self.seeds:
            reply = await episode.chat(messages, seed=seed, **SAMPLING)
            messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": SAYS}]

    async def by_tokens(self, episode: Episode) -> None:
        ids = self.opening()
        for seed in self.seeds:
            reply = await episode.generate(ids, seed=seed, **SAMPLING)
            ids = self.after(ids, reply.ids)

    def opening(self) -> list[int]:
        messages = [{"role": "user", "content": SAYS}]
        return list(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    def after(self, prompt: Sequence[int], response: Sequence[int]) -> list[int]:
        """The next prompt: what the template writes behind these ids, which stay as they are."""
        end = [] if response[-1] == self.tokenizer.eos_token_id else [self.tokenizer.eos_token_id]
        turn = f"\n<|im_start|>user\n{SAYS}<|im_end|>\n<|im_start|>assistant\n"
        return [*prompt, *response, *end, *self.tokenizer.encode(turn)]

    def choose(self, url: str, *kinds: Callable[[list[int]], bool]) -> None:
        """Seeds by which the engine samples, turn by turn, a response of that kind."""
        ids = self.opening()
        for kind in kinds:
            for seed in range(1000):
                ask = {"model": "policy", "prompt": ids, "seed": seed, "return_token_ids": True, **SAMPLING}
                response = orjson.loads(post(url, ask))["choices"][0]["token_ids"]
                if kind(response):
                    break
            else:
                raise AssertionError("no seed gives such a response")
            self.seeds.append(seed)
            ids = self.after(ids, response)

    def canonical(self, response: list[int]) -> bool:
        """The text of these ids is these ids."""
        return bool(self.tokenizer.encode(self.text(response)) == response)

    def invalid(self, response: list[int]) -> bool:
        """Bytes that are no UTF-8, with more behind them."""
        return "\ufffd" in self.text(response)[:-1]

    def cut(self, response: list[int]) -> bool:
        """All is well but the last character, of which only the first byte was sampled."""
        begins = self.canonical(response[:-1]) and self.text(response[-1:]) == "\ufffd"
        return begins and any("\ufffd" not in self.text([response[-1], more]) for more in range(len(self.tokenizer)))

    def text(self, response: list[int]) -> str:
        return str(self.tokenizer.decode(response, skip_special_tokens=True))


@pytest.fixture
def player(tiny_model: Path) -> Player:
    from transformers import AutoTokenizer

    return Player(AutoTokenizer.from_pretrained(tiny_model))


Calls = list[tuple[CallCaptured, StepRecord]]


async def play(real: House, way: Callable[[Episode], Any], group: str) -> Calls:
    """The calls of an episode, in order, with their records in the pool."""
    async with GatewayClient(real.url, run_id="run", model="policy") as client:
        episode = Episode(client, TrajectoryId("t", group), task={}, seed=0)
        await way(episode)
        await episode.complete("completed")
    return [(event, step) for event, step in folded(real.log, group) if step.trajectory_id == "t"]


def timeless(calls: Calls) -> list[StepRecord]:
    """Records without the names and times of calls; a base is named by its place among the calls."""
    places = {event.call_id: str(place) for place, (event, _) in enumerate(calls)}
    return [
        replace(
            step,
            call_id=places[step.call_id],
            base_call_id=places.get(step.base_call_id or ""),
            group_id="",
            first_received_us=0,
            position=None,
            timings=None,
        )
        for _, step in calls
    ]


def sequences(calls: Calls) -> list[int]:
    """Lengths of the sequences that the trainer makes of these calls."""
    whole = prompts({event.call_id: event for event, _ in calls})
    tokens = [call_tokens(event, whole[event.call_id], "run", 1.0) for event, _ in calls]
    return [len(row) for row in rows(tokens, 0)]


async def test_where_the_template_appends_both_ways_give_one_record(real: House, vllm: str, player: Player) -> None:
    """Equal step records, trainable, each written against the one before; one sequence to train."""
    player.choose(vllm, *[player.canonical] * TURNS)
    chat, tokens = await play(real, player.by_chat, "chat"), await play(real, player.by_tokens, "tokens")
    assert timeless(tokens) == timeless(chat)
    assert [step.trainable for _, step in tokens] == [True] * TURNS
    assert [step.base_call_id is not None for _, step in tokens] == [False, True, True, True]
    assert sequences(tokens) == sequences(chat)
    assert len(sequences(tokens)) == 1


@pytest.mark.parametrize("kind", ["invalid", "cut"])
async def test_what_is_no_text_forks_chat_and_no_tokens(real: House, vllm: str, player: Player, kind: str) -> None:
    """The text of such a reply makes other ids: by chat the next call is no continuation. By tokens it is."""
    player.choose(vllm, player.canonical, getattr(player, kind), player.canonical)
    chat, tokens = await play(real, player.by_chat, "chat"), await play(real, player.by_tokens, "tokens")
    assert timeless(tokens)[:2] == timeless(chat)[:2]
    assert (len(sequences(tokens)), len(sequences(chat))) == (1, 2)
    ends = [unpack_ids(event.response_ids) for event, _ in tokens]
    (event, _) = tokens[-1]
    whole = unpack_ids(prompts({event.call_id: event for event, _ in tokens})[event.call_id])
    assert whole == player.after(player.after(player.opening(), ends[0]), ends[1])


async def test_the_page_plays_by_tokens(real: House, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second flow of docs/agent-flows.md, where the model lies: three turns in one sequence."""
    page = Path(__file__).parents[4] / "docs" / "agent-flows.md"
    code = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1]
    monkeypatch.chdir(tiny_model.parent)
    (tiny_model.parent / "talk.py").write_text(code)
    calls = await play(real, load_flow("talk.py:Talk").run, "g")
    assert [step.trainable for _, step in calls] == [True] * 3
    assert len(sequences(calls)) == 1
