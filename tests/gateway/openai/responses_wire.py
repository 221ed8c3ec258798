"""A request and a reply of OpenAI's responses as the wire has them, whole and streamed."""

import json
from typing import Any

Json = dict[str, Any]
PATH = "/t1/g1/v1/responses"
ASK: Json = {"model": "tiny", "input": "hi " * 200}


def message(text: str = "hello", **more: Any) -> Json:
    """An item of the output."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part], **more}


def function_call(arguments: str = '{"a":1}') -> Json:
    """An item by which a tool is called."""
    return {"id": "f", "type": "function_call", "call_id": "c1", "name": "add", "arguments": arguments}


def response(*items: Json, response_id: str = "resp_1", **more: Any) -> Json:
    """A whole reply; one message where no item is named."""
    return {
        "id": response_id,
        "object": "response",
        "status": "completed",
        "model": "tiny",
        "output": list(items or (message(),)),
        "usage": {"input_tokens": 4, "output_tokens": 3},
        "previous_response_id": None,
        **more,
    }


def event(kind: str, number: int, **more: Any) -> bytes:
    """An event of a stream."""
    data = json.dumps({"type": kind, "sequence_number": number, **more}, separators=(",", ":")).encode()
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


BEGUN = (
    event("response.created", 0, response=response(status="in_progress", output=[])),
    event("response.output_item.added", 1, output_index=0, item=message(content=[], status="in_progress")),
    event("response.output_text.delta", 2, output_index=0, content_index=0, item_id="m", delta="he"),
    event("response.output_text.delta", 3, output_index=0, content_index=0, item_id="m", delta="llo"),
)
"""What stands before the tokens that a worker hands over."""
TAIL = (event("response.output_item.done", 4, output_index=0, item=message()),)
LAST = event("response.completed", 5, response=response())
STREAM = b"".join((*BEGUN, *TAIL, LAST))
