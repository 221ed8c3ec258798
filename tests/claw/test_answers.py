"""What commands print: one line of JSON an answer, or text for a person."""

from collections.abc import Iterator

import orjson
import pytest

from claw_r1.claw.answers import Answer, emit


def test_answers_are_printed_as_they_come_and_the_highest_code_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Each before the next one is made."""
    printed = list[str]()

    def counted() -> Iterator[Answer]:
        yield Answer({"n": 1}, "one", code=2)
        printed.append(capsys.readouterr().out)
        yield Answer({"n": 2}, ["two", "lines"])
        yield Answer(code=1)

    assert [emit(counted(), as_json=True), emit(counted(), as_json=False)] == [2, 2]
    assert printed == ['{"n":1}\n', '{"n":2}\none\n']
    assert capsys.readouterr().out == "two\nlines\n"


def test_what_is_only_for_a_person_is_neither_made_nor_said_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of a generator, and the hint on stderr; without lines there is no empty one."""

    def lines() -> Iterator[str]:
        yield str(1 // 0)

    assert emit(Answer([], lines(), hint="there is none"), as_json=True) == 0
    assert capsys.readouterr() == ("[]\n", "")
    assert emit(Answer([], hint="there is none"), as_json=False) == 0
    assert capsys.readouterr() == ("", "claw: there is none\n")


def test_what_is_only_for_a_program_is_not_made_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """A function that makes the object is called with `--json` alone."""
    assert emit(Answer(lambda: 1 // 0, "a line"), as_json=False) == 0
    assert capsys.readouterr().out == "a line\n"
    assert emit(Answer(lambda: {"n": 1}, "a line"), as_json=True) == 0
    assert capsys.readouterr().out == '{"n":1}\n'


def test_nobodys_words_reach_the_terminal_as_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """An agent's text sets no clipboard, hides no line and turns no reading order; its lines, tabs, spaces and letters stay."""
    hostile = "a\tb\n\x1b]52;c;cm0gLXJm\x07\r\x9b2J \u202eé日🦀\n5\u00a0€ 東京\u3000タワー क\u200cष 👩\u200d💻"
    assert emit(Answer({"text": hostile}, [hostile, "next"], hint="\x1b[2J"), as_json=False) == 0
    shown = "a\tb\n<U+001B>]52;c;cm0gLXJm<U+0007><U+000D><U+009B>2J <U+202E>é日🦀\n5\u00a0€ 東京\u3000タワー क\u200cष 👩\u200d💻\nnext\n"
    assert capsys.readouterr() == (shown, "claw: <U+001B>[2J\n")
    assert emit(Answer({"text": hostile}, hostile), as_json=True) == 0
    assert orjson.loads(capsys.readouterr().out) == {"text": hostile}
