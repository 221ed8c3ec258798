"""`claw pool steps --text`: what of a conversation is searched."""

import hashlib
import json

import pytest

from claw_r1.consumers.pool.listing import find_steps_and_speech
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.schemas.events import Edge
from tests import facts
from tests.trainer.pooled import Pooled, pooled

FIRST = {"messages": [{"role": "user", "content": "Wo ist der Löffel?"}]}
SECOND = {"messages": [*FIRST["messages"], {"role": "user", "content": "And the fork?"}]}


def written(body: object, base: tuple[str, bytes] | None = None) -> Edge:
    """A body as a client sends it (escaped), as a change against a base where there is one."""
    whole = json.dumps(body).encode()
    keep = next((n for n, (a, b) in enumerate(zip(whole, base[1], strict=False)) if a != b), 0) if base else 0
    return Edge(
        base_call_id=base[0] if base else None,
        keep=keep,
        suffix=whole[keep:],
        full_length=len(whole),
        full_digest=hashlib.sha256(whole).hexdigest(),
    )


@pytest.fixture(scope="module")
def made() -> Pooled:
    """Two calls, the second written as a delta; and one whose base is lost."""
    base = ("c0", json.dumps(FIRST).encode())
    return pooled(
        [
            facts.call("g", "t", "c0", request=written(FIRST), response_body=b'{"said": "On the table."}'),
            facts.call("g", "t", "c1", request=written(SECOND, base), response_body=b'{"said": "Next to it."}'),
            facts.call("g", "u", "c2", request=written(SECOND, base), response_body=b"{}"),
        ]
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("löffel", ["c0", "c1"]),
        ("AND THE FORK", ["c1", "c2"]),
        ("on the table", ["c0"]),
        ("next to it", ["c1"]),
        ("c1", ["c1"]),
        ("knife", []),
    ],
)
def test_text_is_sought_in_the_whole_conversation(made: Pooled, text: str, found: list[str]) -> None:
    """What a call repeats of the calls before it is found, too, though its fact does not hold it; of a request whose base
    is lost, what was added."""
    steps = find_steps_and_speech(made.pool, PoolFilter(text=text), (), None, made.log.lookup())
    assert [step.call_id for step in steps] == found


@pytest.mark.parametrize("text", ['print("hello")', "C:\\tmp", 'HELLO")\nC:', "<\t>", "print(", "Löffel\u2028"])
def test_text_is_sought_as_a_reader_knows_it(text: str) -> None:
    """Quotes, backslashes and line breaks, which JSON escapes, whichever escapes the client chose; in a tool's arguments and in what is no JSON, too."""
    words = 'print("hello")\nC:\\tmp <\t> Löffel\u2028'
    said = {"messages": [{"role": "user", "content": words}]}
    short = json.dumps(said, ensure_ascii=False).encode()
    world = pooled(
        [
            facts.call("g", "t", "c0", request=written(said)),
            facts.call("g", "t", "c1", response_body=short),
            facts.call("g", "t", "c2", response_body=words.encode()),
            facts.call("g", "t", "c3", response_body=json.dumps({"arguments": json.dumps({"code": words})}).encode()),
            facts.call("g", "t", "c4"),
        ]
    )
    steps = find_steps_and_speech(world.pool, PoolFilter(text=text), (), None, world.log.lookup())
    assert [step.call_id for step in steps] == ["c0", "c1", "c2", "c3"]


def test_a_body_that_is_nested_deeply_is_searched_as_it_is() -> None:
    """JSON that can be read and not be written again."""
    deep = b'{"a": ' + b"[" * 500 + b'"spoon"' + b"]" * 500 + b"}"
    world = pooled([facts.call("g", "t", "c0", response_body=deep)])
    steps = find_steps_and_speech(world.pool, PoolFilter(text="SPOON"), (), None, world.log.lookup())
    assert [step.call_id for step in steps] == ["c0"]
