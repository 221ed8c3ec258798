"""The checks of the machine: each finds what is short, and names the place, the command or the setting."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from claw_r1.claw import bf16
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.doctor.findings import error
from claw_r1.claw.show.doctor.machine import cpu, disk, files, libraries, places, spool
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.runtime.modules import EXTRAS


def gateway(**fields: Any) -> GatewaySettings:  # Any: fields of the settings
    return GatewaySettings(**fields)


TRAPS_ON_AMX = "import os; 'ONEDNN_MAX_CPU_ISA' in os.environ or os.kill(os.getpid(), 4)"


def test_a_cpu_that_traps_on_bf16_is_bad_until_the_variable_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no set-up has tried it (a wheel), the doctor does, and says which variable to set; set, it is a warning."""
    for name in bf16.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-I", "-S", "-c", TRAPS_ON_AMX]
    finding = cpu(tmp_path, command)
    assert (finding.severity, "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in finding.says) == ("error", True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    finding = cpu(tmp_path, command)
    assert (finding.severity, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 keeps" in finding.says) == ("warning", True)


def test_what_the_setup_found_is_not_tried_again(tmp_path: Path) -> None:
    """The doctor of an installed environment starts no child for it."""
    bf16.record(bf16.ProcessorTrial(bf16.processor(), "runs"), tmp_path)
    assert cpu(tmp_path, ["/nowhere/python"]).severity == "ok"
    bf16.record(bf16.ProcessorTrial("another CPU", "runs"), tmp_path)
    with pytest.raises(CannotRun, match="not known"):
        cpu(tmp_path, ["/nowhere/python"])


def test_room_and_files_that_are_short_say_what_to_do(tmp_path: Path) -> None:
    """Each names the place or the command; a directory that is not there yet will lie on the disk of the one above."""
    later = tmp_path / "not" / "yet"
    short = disk(later, 1e9, error)
    assert (short.severity, str(later) in short.says, str(tmp_path) in short.remedy) == ("error", True, True)
    assert disk(tmp_path, 0).severity == "ok"
    assert (files(1024).severity, "ulimit" in files(1024).remedy) == ("warning", True)
    assert files(-1).severity == files(1 << 20).severity == "ok"


def test_a_spool_has_room_for_what_each_process_may_write(tmp_path: Path) -> None:
    """The bound of the settings, for each process."""
    bound = (shutil.disk_usage(tmp_path).free * 2) // 3
    assert spool(gateway(spool_dir=tmp_path, spool_bytes_max=bound)).severity == "ok"
    assert spool(gateway(spool_dir=tmp_path, spool_bytes_max=bound, workers=2)).severity == "warning"


def test_each_place_is_where_its_room_is_told_to_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variables of the rooms name them."""
    names = {
        "views": "CLAW_LOG_VIEWS_DIR",
        "checkpoints": "CLAW_TRAINER_OUT_DIR",
        "shared": "CLAW_ROLLOUT_COPIES_DIR",
    }
    for check, name in names.items():
        monkeypatch.setenv(name, str(tmp_path / check))
    assert {check: place for check, place, _ in places() if check in names} == {name: tmp_path / name for name in names}


def test_libraries_that_are_missing_name_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A room that shall not run here needs none: a warning."""
    monkeypatch.setitem(EXTRAS, "gateway", ("no_such_library",))
    finding = libraries("gateway")
    assert (finding.severity, finding.says) == ("warning", "not installed: no_such_library")
    assert "claw-r1[gateway]" in finding.remedy
