"""What docs/batches.md says about GRPO is what the code does: its figures, and what is not there."""

import inspect
from pathlib import Path

import pytest

from claw_r1.datapool.batch.advantages import EPSILON
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.trainer.algorithms.losses import LOG_RATIO_MAX, LOSSES
from claw_r1.trainer.config.reference import ReferenceSettings
from claw_r1.trainer.settings import TrainerSettings

PAGE = Path(__file__).parents[2] / "docs" / "batches.md"
FIELDS = TrainerSettings.model_fields


def rows() -> dict[str, str]:
    """First cell of the table -> what stands under `here`."""
    lines = PAGE.read_text().split("## What GRPO is here")[1].split("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1] for row in cells}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("advantage", f"+ {EPSILON:.0e}".replace("e-0", "e-")),
        ("equal returns", f"`zero_variance: {BatchSpec().zero_variance}`"),
        ("ratio", f"±{LOG_RATIO_MAX:g}"),
        ("clip", f"1 \N{MINUS SIGN} {FIELDS['clip_low'].default:g}"),
        ("clip", f"1 + {FIELDS['clip_high'].default:g}"),
        ("mean", f"`loss_length` ({FIELDS['loss_length'].default})"),
    ],
    ids=["epsilon", "equal", "ratio", "low", "high", "length"],
)
def test_the_figures_of_the_page_are_those_of_the_code(row: str, said: str) -> None:
    """A default that changes takes its row with it."""
    assert said in rows()[row]


def test_that_there_is_no_reference_unless_one_is_set_is_said() -> None:
    """The page's word is the setting's default; no policy loss takes a reference's log-probabilities itself."""
    parameters = {name for loss in LOSSES.values() for name in inspect.signature(loss).parameters}
    assert not any("reference" in name for name in parameters)
    assert ReferenceSettings().coefficient == 0
    assert rows()["reference policy"].startswith("none by default; `reference.coefficient`")


def test_every_paper_is_named() -> None:
    """GRPO, Dr. GRPO and DAPO by their numbers."""
    section = PAGE.read_text().split("## What GRPO is here")[1]
    assert [number for number in ("2402.03300", "2503.20783", "2503.14476") if number not in section] == []
