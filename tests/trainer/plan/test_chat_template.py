"""Calls without ids: rendered by the model's own template, to the ids that an engine would have given."""

import json
from hashlib import sha256

import pytest
from msgspec.structs import replace

from claw_r1.claw.demo.models.tokenizer import build_tokenizer
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.errors import FactUnreadable, NotRenderable
from claw_r1.datapool.view.conversations import CallBodies
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.schemas.arrays import unpack_ids
from claw_r1.schemas.events import CallCaptured, Edge, Integrity, Usage
from claw_r1.trainer.plan.chat_template import ChatTemplate
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

TOKENIZER = build_tokenizer()
ANY = BatchSpec.model_validate({"preset": "sft_logged", "groups_per_batch": 1})
WITHOUT_IDS = Integrity(complete=False, missing=("prompt_ids", "token_ids", "logprobs", "spans"))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("template")
    TOKENIZER.save_pretrained(directory)
    return directory


def request(*messages, **fields):
    return json.dumps({"messages": list(messages), **fields}).encode()


def reply(content, **fields):
    return json.dumps(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": content, **fields}}]}
    ).encode()


USER, AGAIN = {"role": "user", "content": "2+2?"}, {"role": "user", "content": "sure?"}


def test_the_reply_is_what_the_template_adds(model_dir):
    """Prompt with the mark of who speaks next; the reply to its end token."""
    ids = ChatTemplate(model_dir)(CallBodies("chat", request(USER), reply("4")))
    prompt, response = unpack_ids(ids.prompt), unpack_ids(ids.response)
    assert TOKENIZER.decode(prompt) == "<|user|>2+2?<|end|><|assistant|>"
    assert TOKENIZER.decode(response) == "4<|end|>"


def test_a_talk_in_anthropics_messages_is_rendered_as_in_chat(model_dir):
    """System text, a text in parts, a call of a tool: what the reader of conversations makes of them."""
    parts = {"role": "user", "content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "2?"}]}
    block = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}}
    answer = json.dumps({"type": "message", "role": "assistant", "content": [block]}).encode()
    ids = ChatTemplate(model_dir)(CallBodies("messages", request(parts, system="Be brief."), answer))
    assert TOKENIZER.decode(unpack_ids(ids.prompt)) == "<|system|>Be brief.<|end|><|user|>2+2?<|end|><|assistant|>"
    assert TOKENIZER.decode(unpack_ids(ids.response)) == "<|end|>"  # this template shows no tool calls


@pytest.mark.parametrize(
    ("body", "answer", "why"),
    [
        (b"{", reply("4"), "no chat"),
        (b'{"prompt": "2+2"}', reply("4"), "no chat"),
        (request(USER), b'{"error": "no"}', "no chat"),
        (request({"role": "user", "content": [{"type": "image_url"}]}), reply("4"), "more than text"),
    ],
)
def test_what_cannot_be_rendered_says_why(model_dir, body, answer, why):
    """One line each."""
    with pytest.raises(NotRenderable, match=why):
        ChatTemplate(model_dir)(CallBodies("chat", body, answer))


def test_a_request_without_its_history_is_not_rendered(model_dir):
    """What it names stands in another call."""
    body = json.dumps({"input": "sure?", "previous_response_id": "resp_1"}).encode()
    answer = json.dumps({"output": [{"type": "message", "role": "assistant", "content": "Yes."}]}).encode()
    with pytest.raises(NotRenderable, match="names an earlier response"):
        ChatTemplate(model_dir)(CallBodies("responses", body, answer))


def test_a_template_that_rewrites_the_prompt_is_refused(tmp_path):
    """Nobody knows then what the reply was an answer to."""
    fickle = build_tokenizer()
    fickle.chat_template = "{{ messages | length }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fickle.save_pretrained(tmp_path)
    with pytest.raises(NotRenderable, match="otherwise once the reply follows"):
        ChatTemplate(tmp_path)(CallBodies("chat", request(USER), reply("4")))


def conversation():
    """Two calls of a server that gives no ids; the second request is written as a change against the first."""
    first = request(USER)
    second = request(USER, {"role": "assistant", "content": "4"}, AGAIN)
    keep = len(first) - 2
    requests = {
        "c0": Edge(suffix=first, full_length=len(first), full_digest=sha256(first).hexdigest()),
        "c1": Edge(
            base_call_id="c0",
            keep=keep,
            suffix=second[keep:],
            full_length=len(second),
            full_digest=sha256(second).hexdigest(),
        ),
    }
    replies = {"c0": reply("4"), "c1": reply("Yes.")}
    return [
        replace(
            event,
            prompt=facts.edge([]),
            response_ids=b"",
            response_logprobs=b"",
            spans=(),
            integrity=WITHOUT_IDS,
            request=requests[event.call_id],
            response_body=replies[event.call_id],
            usage=Usage(prompt_tokens=9, completion_tokens=5),
        )
        if isinstance(event, CallCaptured)
        else event
        for event in group("g", [None], run="provider")
    ]


def test_a_providers_conversation_becomes_one_row_that_says_how(model_dir):
    """Its calls go on with each other, because the template only appends; both are marked as rendered."""
    world = pooled(conversation())
    selection = select(world.pool, ANY, 3, RUN, ())
    plan = assemble(selection.chosen, ANY, run_id=RUN, sequence=0, version=3, seed=0, envelope=facts.envelope())
    (row,) = rows_of(plan, world.log.lookup(), len(TOKENIZER), ChatTemplate(model_dir))
    assert TOKENIZER.decode(list(row.ids)) == (
        "<|user|>2+2?<|end|><|assistant|>4<|end|><|user|>sure?<|end|><|assistant|>Yes.<|end|>"
    )
    assert TOKENIZER.decode([token for token, m in zip(row.ids, row.mask, strict=True) if m]) == "4<|end|>Yes.<|end|>"
    assert row.rendered_calls == row.call_ids == ("c0", "c1")
    assert set(row.versions) == {-1}
    with pytest.raises(FactUnreadable, match="has no ids") as unreadable:
        rows_of(plan, world.log.lookup(), len(TOKENIZER))
    assert unreadable.value.reason == "not_rendered: c0"
