"""Answers that many pages ask for at once, made once a second at most."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from claw_r1.schemas.json_values import JsonDict

KEPT_MAX = 64


@dataclass(slots=True)
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    made_s: float = 0.0
    answer: JsonDict | None = None


class KeptAnswers:
    """By question. Safe from any thread: a request waits while its answer is being made."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Kept] = OrderedDict()

    def answer(self, question: Hashable, make: Callable[[], JsonDict], fresh_s: float = 1.0) -> JsonDict:
        """With `again_s`: when asking again is worth it, because this was made for somebody else; null: it was made now."""
        with self._lock:
            kept = self._answers.setdefault(question, _Kept())
            self._answers.move_to_end(question)
            while len(self._answers) > KEPT_MAX:
                self._answers.popitem(last=False)
        with kept.lock:
            left_s = kept.made_s + fresh_s - self._clock_s()
            if kept.answer is not None and left_s > 0:
                return {**kept.answer, "again_s": round(left_s, 2)}
            kept.answer = make()
            kept.made_s = self._clock_s()
            return {**kept.answer, "again_s": None}

    def forget(self) -> None:
        """Forgets all kept replies, so that the next request makes a new one: something was done that answers tell of."""
        with self._lock:
            self._answers.clear()
