"""Token ids as text, exactly.

Invariant: the bytes of all pieces, one after the other, are the bytes of the ids. A character whose bytes span
several tokens is in none of them as text: each shows its bytes, and the character is given separately.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
PLAIN_BYTES = frozenset((*range(33, 127), *range(161, 173), *range(174, 256)))
"""Bytes that a byte-level vocabulary writes as the character of that number; the others, in order, from 256
on (as GPT-2's)."""
SYMBOLS = {
    chr(byte) if byte in PLAIN_BYTES else chr(256 + sum(other not in PLAIN_BYTES for other in range(byte))): byte
    for byte in range(256)
}

VocabularyPiece = str | list[str]
"""Text; or, where some bytes of a token are part of a character or of none, texts and bytes
(hex) in turn, text first."""


class NoTokenizer(Exception):
    """There is no text for these ids; gives reason and remedy."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """One piece per token, and the characters that several tokens make: [first token, last token, character]."""

    pieces: list[VocabularyPiece] = field(default_factory=list)
    characters: list[tuple[int, int, str]] = field(default_factory=list)


class Vocabulary:
    """The tokens of one tokenizer as bytes."""

    def __init__(self, folder: Path) -> None:
        """Raises NoTokenizer."""
        self.folder = folder
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise NoTokenizer(
                f"{path} is no tokenizer that can be read ({error}): --tokenizer DIR names another"
            ) from error
        self._added = self._tokenizer.get_added_tokens_decoder()
        decoder = repr(self._tokenizer.decoder)
        self._byte_level, self._byte_fallback = "ByteLevel(" in decoder, "ByteFallback(" in decoder
        self._bytes: dict[int, bytes] = {}

    def is_special(self, token_id: int) -> bool:
        """Returns whether the id marks something and is no text."""
        return token_id in self._added and self._added[token_id].special

    def token(self, token_id: int) -> bytes:
        """Returns the bytes that the id stands for. Raises NoTokenizer where the vocabulary has no such id."""
        if token_id not in self._bytes:
            self._bytes[token_id] = self._read(token_id)
        return self._bytes[token_id]

    def _read(self, token_id: int) -> bytes:
        word = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if word is None:
            size = self._tokenizer.get_vocab_size(with_added_tokens=True)
            raise NoTokenizer(
                f"id {token_id} is none of the {size} of the tokenizer in {self.folder}, so it is another model's: "
                "start the dashboard with --tokenizer DIR of the model that sampled this"
            )
        if token_id in self._added:
            return str(self._added[token_id].content).encode()
        if self._byte_level and all(symbol in SYMBOLS for symbol in word):
            return bytes(SYMBOLS[symbol] for symbol in word)
        if self._byte_fallback and (byte := BYTE.fullmatch(word)):
            return bytes.fromhex(byte[1])
        return (word.replace("▁", " ") if self._byte_fallback else word).encode()


def pieces_of(tokens: Sequence[bytes]) -> Pieces:
    """Pieces of tokens that follow each other."""
    done = Pieces()
    split: list[bytes] = []
    for token in tokens:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            split.append(token)  # and whoever shares its character is beside it, and no text either
            continue
        if split:
            _put(done, split)
            split = []
        done.pieces.append(text)
    _put(done, split)
    return done


def _put(done: Pieces, tokens: Sequence[bytes]) -> None:
    """Adds neighbours if none is complete text."""
    first = len(done.pieces)
    owners = [number for number, token in enumerate(tokens) for _ in token]
    parts: list[list[str]] = [[""] for _ in tokens]
    for start, raw, character in _characters(b"".join(tokens)):
        touched = owners[start : start + len(raw)]
        if character is not None and touched[0] == touched[-1]:
            own = parts[touched[0]]
            own[-1:] = [own[-1] + character] if len(own) % 2 else [own[-1], character]
            continue
        for number in dict.fromkeys(touched):
            _put_bytes(
                parts[number], bytes(b for b, owner in zip(raw, touched, strict=True) if owner == number), character
            )
        if character is not None:
            done.characters.append((first + touched[0], first + touched[-1], character))
    done.pieces.extend(parts)


def _put_bytes(parts: list[str], raw: bytes, character: str | None) -> None:
    digits = raw.hex(" ").upper()
    if len(parts) % 2:
        parts.append(digits)
    elif character is None:
        parts[-1] += f" {digits}"
    else:
        parts += ["", digits]


def _characters(raw: bytes) -> Iterator[tuple[int, bytes, str | None]]:
    """(place, bytes, character) in order; None: a byte that is part of no character."""
    place = 0
    for character in raw.decode(errors="surrogateescape"):
        escaped = "\udc80" <= character <= "\udcff"
        size = 1 if escaped else len(character.encode())
        yield place, raw[place : place + size], None if escaped else character
        place += size
