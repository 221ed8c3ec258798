"""The rows to show, as the parameters of an address: the filters of `claw pool`."""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from claw_r1.datapool.view.listing.pool_filter import PoolFilter

Id = Annotated[str, Field(min_length=1, max_length=4096)]


class StrictBody(BaseModel):
    """The base of requests: a field that is misspelt is refused, and so is a number that is none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Filtered(StrictBody):
    """The rows to show, by the names that `claw pool` has for its filters; a field that is misspelt is refused."""

    def filter(self) -> PoolFilter:
        """Raises ValueError for a bound that is none."""
        return PoolFilter(**{each.name: getattr(self, each.name) for each in fields(PoolFilter)})


if TYPE_CHECKING:
    FilterQuery = _Filtered
else:  # its fields are those of PoolFilter, which stand in one place
    HINTS = get_type_hints(PoolFilter, include_extras=True)
    FilterQuery = create_model(
        "FilterQuery",
        __base__=_Filtered,
        **{each.name: (HINTS[each.name], each.default) for each in fields(PoolFilter)},
    )
