"""The costs of a long conversation: its bytes on the log, and the gateway's CPU for its last call.

One conversation of 40 turns that grows to 30,000 tokens, in OpenAI's format with the tools after the messages, as the SDK
writes them. Per call: parse the request and the engine's reply, choose the base, make the event, encode it. `ratio`: bytes
written ÷ (final context + outputs), by differences and in full.
"""

from bench.report import Bench

BENCH = Bench(
    name="deltas",
    about=__doc__,
    parts={"deltas": "bench.deltas.long_conversation:measure"},
    sizes={"turns": 40, "tokens": 30_000},
    targets={"deltas.ratio": ("<=", 1.3)},
)

if __name__ == "__main__":
    BENCH.main()
