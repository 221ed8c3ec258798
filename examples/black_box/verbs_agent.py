"""The verbs agent as a program: its task on stdin, one line of JSON on stdout for each answer. `--sdk` calls by OpenAI's SDK.

It reads OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, and nothing of the system that trains it.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

sys.path.append(
    str(Path(__file__).resolve().parents[2] / "infra" / "python")
)  # the rules of the game, where nothing is installed

from claw_r1.claw.demo.verbs.environment import Task, judge

SAMPLING = {"temperature": float(os.environ.get("CLAW_TEMPERATURE", "1")), "max_tokens": 7}
ENGINE = {"skip_special_tokens": False}
"""A field of vLLM's: a mark within an answer is a fault, so it has to be seen."""
PromptMessage = dict[str, str]


def ask_by_http(messages: list[PromptMessage]) -> str:
    """One model call with nothing but the standard library; starts in a tenth of the SDK's time."""
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, **SAMPLING, **ENGINE}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"] or ""


def ask_by_sdk(messages: list[PromptMessage]) -> str:
    """The same call by OpenAI's SDK, which reads the environment itself."""
    import openai

    reply = openai.OpenAI().chat.completions.create(
        model=os.environ["OPENAI_MODEL"],
        messages=messages,  # type: ignore[arg-type]  # plain dicts are what the SDK sends
        temperature=SAMPLING["temperature"],
        max_tokens=int(SAMPLING["max_tokens"]),
        extra_body=ENGINE,
    )
    return reply.choices[0].message.content or ""


def main() -> None:
    """Play one episode: answer each observation until a fault or the end."""
    ask = ask_by_sdk if "--sdk" in sys.argv[1:] else ask_by_http
    task = Task(tuple(json.load(sys.stdin)["observations"]))
    messages: list[PromptMessage] = []
    for index, observation in enumerate(task.observations):
        where = {"role": "tool", "tool_call_id": f"turn-{index}"} if index else {"role": "user"}
        messages.append({**where, "content": observation})
        text = ask(messages)
        messages.append({"role": "assistant", "content": text})
        print(json.dumps(text))
        if judge(task, index, text).observation is None:
            break


if __name__ == "__main__":
    main()
