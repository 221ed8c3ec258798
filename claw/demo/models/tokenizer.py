"""A byte-level tokenizer made in code: one id per byte, six ids that mark who speaks, no merges (but for a judge's).

Invariant: the chat template is append-only and adds nothing but the marks. Rendering a conversation, then the reply and
the next message, extends (prompt ids + sampled ids) id by id, so that an episode is one sequence for the trainer. The
reply's own `<|end|>`, which the engine samples and reports, is the very id that the template writes after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BYTES = 256
PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIALS = (PAD, END, *(f"<|{role}|>" for role in ROLES))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] or '' }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer(corpus: Sequence[str] = (), vocabulary: int = BYTES) -> "PreTrainedTokenizerFast":
    """262 ids: the 256 bytes, then SPECIALS. Every id below the vocabulary's size decodes; every text encodes.

    corpus: texts whose frequent words get ids of their own, up to `vocabulary` ids before SPECIALS.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if corpus:
        words = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(corpus, words)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
