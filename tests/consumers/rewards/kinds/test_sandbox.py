"""`use: sandbox:…`: the code of the last reply against the task's tests."""

import json
import os
import re
import subprocess
import sys
import threading
import venv
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.judged import Judged, JudgedCall
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.kinds.sandbox import cases_of, code_of
from claw_r1.consumers.rewards.scorer import GaveUp

pytestmark = pytest.mark.process
ADDS = "Here:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
WRONG = "```python\ndef add(a, b):\n    return 3\n```"
TESTS = "from solution import add\ndef test_a(): assert add(1, 2) == 3\ndef test_b(): assert add(2, 2) == 4\n"


@pytest.fixture
def opened():
    """Scorers by their settings; all are closed."""
    scorers = []

    def opening(form, **fields):
        kind = kind_of("sandbox")
        defaults = {"source": "rule", "name": "tests", "version": 1, "scope": "trajectory", "use": f"sandbox:{form}"}
        scorers.append(kind.open(kind.settings(**defaults | fields)))
        return scorers[-1]

    yield opening
    for scorer in scorers:
        scorer.close()
        scorer.close()


def subject(reply, task=None, metadata=None):
    """A trajectory that ends with a reply; None: its text is lost."""
    message = None if reply is None else {"role": "assistant", "content": reply}
    call = JudgedCall(call_id="c", reply=message)
    return Judged(scope="trajectory", group_id="g", trajectory_id="t", calls=(call,), task=task, metadata=metadata)


def answers(scorer, *subjects):
    """Values, or reasons."""
    ends = [future.exception(60) or future.result() for future in scorer.judge(subjects)]
    return [end.reason if isinstance(end, GaveUp) else end.values[0] for end in ends]


def test_tests_of_the_task(opened) -> None:
    """1 or 0 by pytest's word; what keeps the tests from being run is no verdict."""
    scorer = opened("pytest", parallel=2)
    task = {"tests": TESTS}
    subjects = [
        subject(ADDS, task),
        subject(WRONG, task),
        subject("no code at all", task),
        subject("```python\nimport os; os._exit(0)\n```", task),
        subject(ADDS, {"tests": "def ("}),
        subject(ADDS, {"tests": 7}),
        subject(ADDS, {}),
        subject(ADDS),
        subject(None, task),
        subject(ADDS + "\0\ud800", task),
    ]
    expected = [1.0, 0.0, 0.0, 0.0, "tests_broken", "tests_broken", "no_tests", "no_tests", "no_text", 1.0]
    assert answers(scorer, *subjects) == expected


def test_the_share_that_passed_and_its_words(opened) -> None:
    """`score: share`; the detail says how many and why."""
    scorer = opened("pytest", score="share", tests="metadata.hidden.tests")
    (future,) = scorer.judge([subject(WRONG, metadata={"hidden": {"tests": TESTS}})])
    opinion = future.result(60)
    assert opinion.values == (0.5,)
    assert opinion.detail.startswith("1 of 2 passed; failed; ")
    assert "\n" not in opinion.detail


def test_scripts_files_and_programs(opened, tmp_path) -> None:
    """Lines of a data set, a file for all, cases of input and output."""
    assert answers(opened("python"), subject(ADDS, {"tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]})) == [
        1.0
    ]
    path = tmp_path / "tests.py"
    path.write_text("assert add(1, 2) == 4")
    assert answers(opened("python", tests=str(path)), subject(ADDS)) == [0.0]
    program = "```\nprint(int(input()) * 2)\n```"
    cases = {"inputs": ["1\n", "4\n"], "outputs": ["2\n", "9\n"]}
    scorer = opened("command", score="share", command=("python", "-I", "main.py"))
    assert answers(scorer, subject(program, {"tests": cases}), subject(program, {"tests": []})) == [0.5, "no_tests"]


def test_the_last_block_is_the_code() -> None:
    """What was thought aloud before is not."""
    text = "<think>```\nno\n```</think>\n```python\nfirst\n```\nand\n```\nlast\n```\n"
    assert code_of(text, "block") == "last\n"
    assert code_of("x</think>reply", "reply") == "reply"
    assert code_of("```python\nnever closed", "block") is None


def test_a_block_that_says_python_is_the_code() -> None:
    """Whatever follows it; for programs in other languages the last one is."""
    text = "```python\nx = 1\n```\nIt prints\n```\n1\n```\n"
    assert code_of(text, "block") == "x = 1\n"
    assert code_of(text, "block", python=False) == "1\n"
    for language in ("py", "Python", "python3", "{python}", 'python title="a"', "python3.11"):
        assert code_of(f"```{language}\nx = 1\n```\n```text\n1\n```\n", "block") == "x = 1\n"
    assert code_of("```pycon\n>>> 1\n```\n```\nx\n```", "block") == "x\n"
    assert code_of("```py\nfirst\n```\n```py\nlast\n```", "block") == "last\n"


THOUGHTS = {
    "a text in the code": ('```python\nEND = "</think>"\n```', 'END = "</think>"\n'),
    "a tag in the code": ("```python\ns = f'<think>{x}</think>!'\n```", "s = f'<think>{x}</think>!'\n"),
    "thoughts that name it": ("I close with '</think>'.\n</think>\n```\nx\n```", "x\n"),
    "thoughts, and code with it": ("a\n</think>\n```python\nEND = '</think>'\n```", "END = '</think>'\n"),
    "a block of thoughts that never closed": ("```python\nno\n</think>\n```python\nx\n```", "x\n"),
    "the same within a line": ("```python\nno</think>\n```python\nx\n```", "x\n"),
    "a block right behind it": ("no</think>```python\nx\n```", "x\n"),
    "an answer that speaks of it": ("a</think>\n```\nx\n```\nMy thoughts ended with </think> above.", "x\n"),
    "code in the thoughts alone": ("```python\nx\n```\n</think>\nI give up.", None),
}


@pytest.mark.parametrize(("text", "code"), THOUGHTS.values(), ids=THOUGHTS)
def test_thoughts_end_where_the_code_does_not_say_so(text, code) -> None:
    """A literal `</think>` in the code does not cut it."""
    assert code_of(text, "block") == code


@given(
    st.lists(st.sampled_from(["```", " ```", "```py", "`", "x", " ", "\t", "\n", "\r", "````", "\u2028"])).map("".join)
)
def test_blocks_are_what_a_pattern_of_whole_ones_says(text) -> None:
    """Found line by line."""
    whole = re.compile(r"^[ \t]*```([^\n`]*)\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
    blocks = [(re.match(r"py\b", language.strip()), block) for language, block in whole.findall(text)]
    named = [block for is_python, block in blocks if is_python]
    assert code_of(text, "block") == (named or [block for _, block in blocks] or [None])[-1]


def test_fences_that_never_close_cost_their_length() -> None:
    """1.2 MB of them: a pattern of whole blocks would hold the interpreter for hours."""
    assert code_of("```a\n" * 250_000, "block") is None
    assert code_of("```\n" + "'</think> a</think> " * 250_000 + "\n```", "block")


def test_cases_are_read_from_what_data_sets_have() -> None:
    """As JSON too; anything else is the task's fault."""
    assert cases_of('[{"input": "1", "output": "2"}]') == [("1", "2")]
    assert cases_of({"inputs": ["1"], "outputs": ["2"]}) == [("1", "2")]
    for bad in ("nonsense", [1], {"inputs": ["1"], "outputs": []}, [{"input": 1, "output": 2}], {}, []):
        with pytest.raises(GaveUp):
            cases_of(bad)


def test_closing_while_code_runs_takes_no_time(opened) -> None:
    """What was not judged has no verdict."""
    scorer = opened("python", cpu_s=60, timeout_s=60.0)
    futures = scorer.judge([subject("```\nimport time; time.sleep(60)\n```", {"tests": "assert 1"})] * 3)
    timer = threading.Timer(1.0, scorer.close)
    timer.start()
    timer.join()
    for future in futures:
        with pytest.raises(CancelledError):  # and not GaveUp: nobody judged it, and its deadline was not waited for
            future.result(5)


def test_a_keeper_that_is_killed_costs_no_verdict(opened) -> None:
    """Its run is tried once more, with a new one."""
    scorer = opened("python")
    threading.Timer(1.0, lambda: scorer._sandboxes[0]._process.kill()).start()
    slow = subject("```python\nimport time; time.sleep(2)\nx = 1\n```", {"tests": "assert x == 1"})
    assert answers(scorer, slow) == [1.0]


def test_what_cannot_work_is_refused_at_opening(opened, tmp_path) -> None:
    """By a line."""
    with pytest.raises(ValueError, match="sandbox:ruby is none of sandbox:pytest"):
        opened("ruby")
    with pytest.raises(ValueError, match="network"):
        opened("pytest", network=True)
    with pytest.raises(ConsumerError, match=r"rule/tests: the tests nowhere\.py"):
        opened("pytest", tests="nowhere.py")


WITHOUT_PYTEST = """
import json
from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.kinds.sandbox import KIND
from claw_r1.consumers.sandbox import grading
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxLimits
said = []
for form in ("pytest", "python"):
    fields = {"source": "rule", "name": "tests", "version": 1, "scope": "trajectory", "use": f"sandbox:{form}"}
    try:
        KIND.open(KIND.settings(**fields)).close()
        said.append("opened")
    except ConsumerError as error:
        said.append(str(error))
with Sandbox() as sandbox:
    try:
        result = grading.by_tests(sandbox, "pytest", "x = 1", "def test_a(): pass", SandboxLimits())
        said.append(str(result))
    except grading.BrokenTests as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_an_interpreter_without_pytest_is_refused_and_no_code_pays_for_it(tmp_path) -> None:
    """The scorer says at opening what to install; where pytest goes later, it is the tests' fault, not a verdict of 0."""
    venv.create(tmp_path / "venv", with_pip=False)
    # Who scores has its libraries; the sandbox, which takes no such variable, has what the interpreter itself has.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    python = tmp_path / "venv/bin/python"
    ended = subprocess.run(
        [python, "-c", WITHOUT_PYTEST], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    refused, opened, broken = json.loads(ended.stdout)
    assert refused.startswith("rule/tests: no pytest in the sandbox (pip install 'claw-r1[consumers]' brings it)")
    assert "No module named 'pytest'" in refused
    assert opened == "opened"
    assert broken.startswith("the tests do not run: pytest cannot be imported by ")
