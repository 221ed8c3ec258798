"""Which adapter an engine's calls name."""

from claw_r1.rollout.plugin.engine_tap import tap_engine
from claw_r1.rollout.plugin.handover import adapter_request


def test_every_call_names_the_one_place() -> None:
    """Whatever a route asks for; and none where the worker takes whole versions."""
    assert adapter_request(None) is None
    calls: list[object] = []

    class Engine:
        def generate(self, prompt: str, params: object, request_id: str, **fields: object) -> None:
            calls.append(fields)

    for adapter in (None, "ours"):
        engine = Engine()
        tap_engine(engine, adapter)
        engine.generate("p", object(), "id", lora_request=None, priority=3)
    assert calls == [{"lora_request": None, "priority": 3}, {"lora_request": "ours", "priority": 3}]
