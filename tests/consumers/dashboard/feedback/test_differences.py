"""What differs between two texts is a partition of both, and what does not is equal."""

from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.dashboard.feedback.differences import WORDS_MAX, beside, words_apart
from claw_r1.datapool.view.conversations import ConversationTurn

TEXTS = st.text(alphabet="ab \n.,é\u202e", max_size=60)


def turn(role: str, content: str) -> ConversationTurn:
    return ConversationTurn(role=role, content=content, reasoning=None)


@given(TEXTS, TEXTS)
def test_parts_are_the_texts_and_what_is_unmarked_is_common(one: str, other: str) -> None:
    """Joined, the parts of each side are its text; without the marked ones both sides are equal."""
    left, right = words_apart(one, other)
    assert "".join(text for text, _ in left) == one
    assert "".join(text for text, _ in right) == other
    common = ["".join(text for text, differs in side if not differs) for side in (left, right)]
    assert common[0] == common[1]
    assert one != other or not any(differs for _, differs in (*left, *right))


def test_a_word_among_many_is_the_only_one_marked() -> None:
    """Also in a text of more words than are compared, where its ends are equal."""
    words = [f"w{n}" for n in range(2 * WORDS_MAX)]
    changed = [*words]
    changed[WORDS_MAX] = "other"
    left, right = words_apart(" ".join(words), " ".join(changed))
    assert [text.strip() for text, differs in left if differs] == [f"w{WORDS_MAX}"]
    assert [text.strip() for text, differs in right if differs] == ["other"]


def test_conversations_part_once() -> None:
    """Turns are the same up to where the two part; an equal turn behind that is not called shared; what only one has is marked."""
    one = [turn("user", "q"), turn("assistant", "a b"), turn("user", "more")]
    other = [turn("user", "q"), turn("assistant", "a c"), turn("user", "more"), turn("assistant", "end")]
    left, right = beside(one, other)
    assert [each["same"] for each in right] == [True, False, False, False]
    assert left[1]["parts"] == [("a ", False), ("b", True)]
    assert left[2]["parts"] is None
    assert right[3]["parts"] == [("end", True)]
