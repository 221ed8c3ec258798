"""A CPU that traps on bf16, played by a child that dies as torch does there: what the set-up makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw import bf16
from claw_r1.claw.bf16 import VARIABLES, WITHOUT_AMX
from claw_r1.claw.install.cpu import settle

pytestmark = pytest.mark.process
COUNTED = "import os, sys; open(sys.argv[1], 'a').write('x'); "
TRAPS_ON_AMX = COUNTED + "'ONEDNN_MAX_CPU_ISA' in os.environ or os.kill(os.getpid(), 4)"
TRAPS = COUNTED + "os.kill(os.getpid(), 4)"
RUNS = COUNTED
FAILS = COUNTED + "sys.exit('no torch')"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment, as `.venv` is one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv"


def tries(environment: Path, script: str, *, again: bool = False) -> int:
    """How many children multiplied when the set-up settled it, by this script in torch's place."""
    count = environment / "count"
    count.write_text("")
    settle(environment, again=again, command=[sys.executable, "-I", "-S", "-c", script, count])
    return len(count.read_text())


def what_starts_there(environment: Path, **own: str) -> list[str | None]:
    """oneDNN's variables in a process that is started in the environment, by a person whose own are these."""
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    script = f"import os; print([os.environ.get(name) for name in {VARIABLES}])"
    done = subprocess.run(
        [environment / "bin" / "python", "-c", script], env={**plain, **own}, capture_output=True, text=True, check=True
    )
    return [None if word == "None" else word.strip("'") for word in done.stdout.strip()[1:-1].split(", ")]


def test_a_cpu_that_traps_on_amx_is_capped_for_all_that_starts_in_the_environment(environment: Path) -> None:
    """The variable is set in every process that Python starts there, whatever program it is; a person's own value stays."""
    assert tries(environment, TRAPS_ON_AMX) == 2
    assert what_starts_there(environment) == [WITHOUT_AMX, None]
    assert what_starts_there(environment, ONEDNN_MAX_CPU_ISA="AVX2") == ["AVX2", None]
    assert what_starts_there(environment, DNNL_MAX_CPU_ISA="AVX2") == [None, "AVX2"]


def test_a_cpu_is_tried_once(environment: Path) -> None:
    """No later start pays for it, until the environment is made anew or stands on another CPU."""
    assert tries(environment, RUNS) == 1
    assert tries(environment, RUNS) == 0
    assert tries(environment, RUNS, again=True) == 1
    bf16.record(bf16.ProcessorTrial("another CPU", "capped"), environment)
    assert tries(environment, RUNS) == 1
    assert what_starts_there(environment) == [None, None]


def test_another_cpu_undoes_what_the_first_needed(environment: Path) -> None:
    """An environment that was moved to a machine with a working AMX is not held back there."""
    tries(environment, TRAPS_ON_AMX)
    assert tries(environment, RUNS, again=True) == 1
    assert what_starts_there(environment) == [None, None]


def test_a_cpu_that_traps_on_all_of_it_is_named(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the cap does not help none is set, and the line says what to do instead."""
    assert tries(environment, TRAPS) == 2
    assert what_starts_there(environment) == [None, None]
    assert "fp32" in capsys.readouterr().err


def test_a_trial_that_tells_nothing_stops_no_setup(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A child that ends for another reason is no finding: the line gives its last word, and the next start tries again."""
    assert tries(environment, FAILS) == 1
    assert "ended with 1: no torch" in capsys.readouterr().err
    assert tries(environment, RUNS) == 1


def test_a_trial_that_tells_nothing_leaves_no_word_of_an_earlier_one(environment: Path) -> None:
    """The cap is gone then: with the record of it no start would try again, and torch would die."""
    assert tries(environment, TRAPS_ON_AMX) == 2
    assert tries(environment, FAILS, again=True) == 1
    assert tries(environment, TRAPS_ON_AMX) == 2
    assert what_starts_there(environment) == [WITHOUT_AMX, None]


def test_a_processor_is_known_by_what_it_announces(tmp_path: Path) -> None:
    """Two CPUs of one model are two where one announces less, as under another hypervisor; a clock that changes is none of it."""

    def announced(flags: str, clock: str) -> str:
        info = tmp_path / "cpuinfo"
        info.write_text(
            f"processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t: {clock}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
        )
        return bf16.processor(info)

    assert announced("fpu amx_tile", "1") == announced("fpu amx_tile", "2") != announced("fpu", "1")


@pytest.mark.slow
def test_torch_multiplies_here_as_the_setup_found() -> None:
    """The real child: in this environment, as its processes start, a product in bf16 lives."""
    done = subprocess.run(bf16.product(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
