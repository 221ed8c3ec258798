"""Child process of test_tiny_model_served: vLLM's engine on a model directory; prints prompts and replies as JSON."""

import json
import sys

from vllm import LLM, SamplingParams

from claw_r1.claw.demo.verbs.flow import SAMPLING

SCRIPT = [[{"role": "user", "content": "find c"}], [{"role": "tool", "tool_call_id": "turn-1", "content": "c=7"}]]


def main(directory: str) -> None:
    """Play two turns of many conversations at once, whatever the model says."""
    engine = LLM(directory, dtype="float32", enforce_eager=True, max_model_len=512, kv_cache_memory_bytes=64 << 20)
    talks: list[list[dict[str, str]]] = [[] for _ in range(64)]
    turns = []
    for added in SCRIPT:
        talks = [talk + added for talk in talks]
        outputs = engine.chat(talks, SamplingParams(seed=1, **SAMPLING), use_tqdm=False)
        replies = [output.outputs[0] for output in outputs]
        talks = [
            [*talk, {"role": "assistant", "content": reply.text}] for talk, reply in zip(talks, replies, strict=True)
        ]
        turns.append(
            [
                (output.prompt_token_ids, list(reply.token_ids), reply.text, reply.finish_reason)
                for output, reply in zip(outputs, replies, strict=True)
            ]
        )
    print(json.dumps(turns))


if __name__ == "__main__":
    main(sys.argv[1])
