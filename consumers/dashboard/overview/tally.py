"""The pool in numbers: counts, rates and curves over time, from the columns of its lists, so that no row is decoded. Pure."""

from collections import Counter

import numpy as np

from claw_r1.datapool.fold.readiness import EVICTED
from claw_r1.datapool.view.listing.columns import RowKind
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING
from claw_r1.datapool.view.listing.table import ColumnTable, Floats, RowMask
from claw_r1.datapool.view.listing.tables import PoolTables
from claw_r1.schemas.http import Channel
from claw_r1.schemas.json_values import JsonDict

RATE_S = 300
"""Rates are those of the last so many seconds."""
BUCKETS_MAX = 80
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800)
SPAN_MAX_S = 86400
"""The span that is looked at where the request names none."""


def tally(tables: PoolTables, now_us: int, span_s: int | None = None) -> JsonDict:
    """Everything but evaluation (channel val), which is counted once. span_s: of the curves; None: all, at most a day."""
    trajectories, groups, calls = tables.trajectories, tables.groups, tables.steps
    played, grouped, called_for = (_played(tables, kind) for kind in ("trajectories", "groups", "steps"))
    is_open = trajectories.holding("status", ["open"])
    over = played & ~is_open
    rewarded = over & ~np.isnan(trajectories.values("return"))
    ready = trajectories.values("ready") == 1
    ended = np.where(over, trajectories.values("ended"), np.nan)
    called = np.where(called_for, calls.values("started"), np.nan)
    return {
        "groups": {
            "total": int(grouped.sum()),
            "ready": int((grouped & (groups.values("ready") == 1)).sum()),
            "not_ready": _reasons(groups, grouped & (groups.values("ready") == 0)),
        },
        "trajectories": {
            "total": int(played.sum()),
            "evaluation": int(trajectories.alive.sum() - played.sum()),
            "open": int((played & is_open).sum()),
            "over_without_reward": int((over & ~rewarded).sum()),
            "rewarded": int(rewarded.sum()),
            "ready": int((played & ready).sum()),
            "not_ready": _reasons(trajectories, over & ~ready),
        },
        "calls": {
            "total": int(calls.alive.sum()),
            "trainable": int(np.nansum(calls.values("trainable"))),
            "curated": int(np.nansum(calls.values("curated"))),
            "not_trainable": _reasons(calls, calls.values("trainable") == 0),
        },
        "per_minute": {"calls": _rate(called, now_us), "ended": _rate(ended, now_us)},
        "last_us": {"call": _last(called), "ended": _last(ended)},
        "curves": _curves(called, ended, trajectories.values("return"), now_us, span_s),
    }


def _rate(times: Floats, now_us: int) -> float:
    """Per minute."""
    return round(int(np.sum(times > now_us - RATE_S * 1e6)) * 60 / RATE_S, 2)


def _last(times: Floats) -> int | None:
    return None if np.isnan(times).all() else int(np.nanmax(times))


def ready_groups(tables: PoolTables) -> RowMask:
    """Returns the mask of groups that could be trained, by number."""
    mask: RowMask = _played(tables, "groups") & (tables.groups.values("ready") == 1)
    return mask


def _played(tables: PoolTables, kind: RowKind) -> RowMask:
    """Rows for training, by number; what came in since the last question is among them."""
    table = tables.table(kind)
    mask: RowMask = tables.mask(kind, EVERYTHING) & ~table.holding("channel", [Channel.VALIDATION])
    return mask & ~table.holding("reasons", [(EVICTED,)])  # stubs of groups: their channel is not known any more


def _reasons(table: ColumnTable, mask: RowMask) -> dict[str, int]:
    """Counts the rows that have each reason, the most frequent first."""
    codes = table.values("reasons")[mask]
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64))
    words: Counter[str] = Counter()
    for several, number in zip(table.words["reasons"], counts.tolist(), strict=False):  # rare words have none here
        words.update(dict.fromkeys(several, number) if number else ())
    return dict(words.most_common(50))


def _curves(called: Floats, ended: Floats, returns: Floats, now_us: int, span_s: int | None) -> JsonDict:
    """Per bucket: calls, trajectories that ended, and the mean of their returns (null where there is none)."""
    times = np.concatenate([called, ended])
    times = times[~np.isnan(times)]
    if not len(times):
        return {"bucket_s": WIDTHS_S[0], "start_us": now_us, "calls": [], "ended": [], "returns": []}
    newest = min(float(times.max()), float(now_us))
    span_us = (span_s or min(SPAN_MAX_S, (newest - float(times.min())) / 1e6 + 1)) * 1e6
    end_us = float(now_us) if now_us - newest < span_us / 2 or span_s else newest
    if span_s is None:
        span_us = min(SPAN_MAX_S * 1e6, end_us - max(float(times.min()), end_us - SPAN_MAX_S * 1e6) + 1e6)
    width_s = next((width for width in WIDTHS_S if span_us / 1e6 / width <= BUCKETS_MAX - 1), WIDTHS_S[-1])
    last = int(end_us // (width_s * 1e6))
    first = max(int((end_us - span_us) // (width_s * 1e6)), last - BUCKETS_MAX + 1)
    size = last - first + 1

    def placed(values: Floats, weights: Floats | None = None) -> Floats:
        with np.errstate(invalid="ignore"):
            places = np.floor(values / (width_s * 1e6)) - first
        inside = (places >= 0) & (places < size) & (True if weights is None else ~np.isnan(weights))
        sums = np.bincount(places[inside].astype(np.int64), None if weights is None else weights[inside], size)
        return sums.astype(np.float64)

    sums, counts = placed(ended, returns), placed(np.where(np.isnan(returns), np.nan, ended))
    means = [round(float(total / count), 6) if count else None for total, count in zip(sums, counts, strict=True)]
    return {
        "bucket_s": width_s,
        "start_us": int(first * width_s * 1e6),
        "calls": placed(called).astype(int).tolist(),
        "ended": placed(ended).astype(int).tolist(),
        "returns": means,
    }
