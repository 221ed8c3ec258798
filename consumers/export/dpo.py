"""Preferences out: `pairs.parquet`, a row for each pair, in the shape that DPO trainers take (TRL's conversational one).

Order: as every dataset; within a group preferences, then rewards, then edits. Memory: one partition's folded groups, and the
calls of one group.
"""

from contextlib import closing
from pathlib import Path

from claw_r1.consumers.export.history_scan import ExportProgress, Tally, calls_of, chosen_groups, partitions, positions
from claw_r1.consumers.export.offsets import OffsetVector
from claw_r1.consumers.export.pair_rows import PairedEpisode, pair_row
from claw_r1.consumers.export.pairs import PairSettings, pairs_of
from claw_r1.consumers.export.tables import PAIRS, TableWriter
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.eventlog.settings import LogSettings

FILE = "pairs.parquet"


def write_pairs(
    settings: LogSettings,
    vector: OffsetVector,
    spec: BatchSpec | None,
    pairs: PairSettings,
    folder: Path,
    tally: Tally,
    progress: ExportProgress,
) -> dict[str, int]:
    """Writes the pairs; rows by file. Pairs that do not go out are counted in `tally.left_out` as `pair: <reason>`."""
    with closing(TableWriter(folder / FILE, PAIRS)) as table, closing(FactLookup(settings)) as lookup:
        for folded in partitions(settings, vector, tally, progress):
            for members in chosen_groups(folded.groups.values(), spec, tally):
                group_id, refused = members[0].record.group_id, type(tally.left_out)()
                of_group = pairs_of(members, folded.feedback.standing(group_id), pairs, refused)
                concerned = {side.trajectory_id for pair in of_group for side in (pair.chosen, pair.rejected)}
                episodes = [member for member in members if member.record.trajectory_id in concerned]
                records = lookup.get({position for member in episodes for position in positions(member)})
                texts = {
                    member.record.trajectory_id: PairedEpisode(
                        member, calls_of(member, records), any_policy=spec is None
                    )
                    for member in episodes
                }
                for row in (pair_row(pair, texts) for pair in of_group):
                    if isinstance(row, str):
                        refused[row] += 1
                    else:
                        table.write(row)
                tally.left_out.update({f"pair: {reason}": count for reason, count in refused.items() if count})
    tally.counts["pairs"] = table.rows
    return {FILE: table.rows}
