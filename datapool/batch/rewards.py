"""What the reward slots of one subject say. Pure."""

from schemas.events import RewardSlot


def slot_text(slot: RewardSlot) -> str:
    """A slot for people: `source/name` and its value, or why it has none."""
    value = "taken back" if slot.value is None else f"{slot.value:g}"
    return f"{slot.source}/{slot.name} {value if slot.failed is None else f'failed ({slot.failed})'}"
