"""Whatever an engine writes into its events, in any protocol: its stream adds up to something, or to nothing, and nothing raises."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_r1.gateway.errors import UpstreamBroken
from claw_r1.gateway.protocols import PROTOCOLS
from claw_r1.gateway.tokens.packed_protocol import PackedProtocol
from tests.soak import SOAK

WORDS = (
    "index delta message logprobs token_ids finish_reason text content tool_calls role citation partial_json type output_index "
    "content_index item response output usage content_block id status incomplete_details stop_reason"
)
TYPES = (
    "message_start content_block_start content_block_delta message_delta message_stop response.completed "
    "response.output_text.delta response.output_item.done response.output_item.added response.function_call_arguments.delta"
)
NAMES, KINDS = (st.sampled_from(words.split()) for words in (WORDS, TYPES))
ODD = st.sampled_from([None, True, 1.5, -1, 0, "x", "", [1], [None], {}, [], [{"index": 0}], [{"index": "x", "a": 1}]])
VALUES = st.recursive(
    ODD, lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=2), max_leaves=6
)
CHOICES = st.lists(st.dictionaries(NAMES, VALUES, max_size=4) | ODD, max_size=2)
EVENTS = st.builds(
    lambda fields, choices, kind: {**fields, **choices, **kind},
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.just({}) | st.fixed_dictionaries({"choices": CHOICES}),
    st.just({}) | st.fixed_dictionaries({"type": KINDS}),
)


@pytest.mark.parametrize("protocol", [each for _, each in PROTOCOLS], ids=[each.name for _, each in PROTOCOLS])
@pytest.mark.soak
@settings(max_examples=1000 if SOAK else 60, deadline=None)
@given(st.lists(EVENTS, max_size=5), st.booleans())
def test_odd_values_are_no_bug(protocol: PackedProtocol, events: list[dict[str, Any]], interrupted: bool) -> None:
    """An odd chunk costs what it says, never the text and tokens of the others."""
    stream = protocol.open_stream()
    stream.feed(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
    with contextlib.suppress(UpstreamBroken):  # what came is no reply of this protocol
        stream.reply(interrupted=interrupted)
