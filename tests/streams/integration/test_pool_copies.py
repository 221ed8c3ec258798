"""Rows of a partition in a file that outlives its worker: whatever happened to it, reading on from there ends at the pool."""

import itertools
import os
import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from claw_r1.datapool.pool_file import AGE_MAX_S, CLOCK_S, PoolFile
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from claw_r1.streams.ownership import OwnedPartition
from claw_r1.streams.recovery import state_of
from claw_r1.streams.standby import POOL, PoolCopy
from tests import facts
from tests.small_disk import run_on_small_disk
from tests.streams import pool

SETTINGS = LogSettings(partitions=1)
NAMES = {SETTINGS.catalogue().name(topic): topic.name for topic in POOL}


class House:
    """One partition on a log in memory, and whoever owns it, with a file or without."""

    def __init__(self, path: Path, events=(), now_s=1e9) -> None:
        self.log, self.path, self.now_s, self.ends = MemoryLog(SETTINGS), path, now_s, {}
        self.say(events)

    def say(self, events) -> None:
        for event in events:
            self.log.append([pool.outgoing(event)])

    def copy(self, path: Path | None = None, log_id="ids") -> PoolCopy:
        """As the next worker finds it, with the tail."""
        ends = self.log.reader(POOL).end_offsets()
        file = PoolFile(path or self.path, log_id, lambda: self.now_s)
        return self.read_on(PoolCopy.of(file, ends))

    def read_on(self, copy: PoolCopy) -> PoolCopy:
        self.tail = 0
        for record in self.log.reader(POOL, start=copy.read).read_to_end():
            copy.add(NAMES[record.topic], record)
            self.tail += 1
        copy.write()
        copy.caught_up()
        return copy

    def owner(self) -> OwnedPartition:
        """A worker's partition, its former owner fenced."""
        producer = self.log.transactions("streams-0")
        producer.open()
        copy = self.copy()
        return OwnedPartition(state_of(0, 1, copy.store, resting_max=0), producer, copy)

    def fold(self, owned: OwnedPartition, count: int) -> None:
        for topic in (CALLS, REWARDS):
            name = SETTINGS.catalogue().name(topic)
            start = {(name, 0): owned.state.expected(name)}
            for record in list(self.log.reader([topic], start=start).read_to_end())[:count]:
                owned.state.apply(record)

    def write(self, owned: OwnedPartition) -> None:
        """Folds all that there is, and commits it."""
        self.fold(owned, 1000)
        owned.commit(owned.take())

    def keep(self, owned: OwnedPartition) -> None:
        """As `Ownership.keep`."""
        before, self.ends = self.ends, self.log.reader(POOL).end_offsets()
        owned.keep(before, self.ends)

    def image(self, folder: Path) -> Path:
        """What a kill of this moment leaves of the file."""
        folder.mkdir()
        for each in self.path.parent.glob(f"{self.path.name}*"):
            shutil.copy(each, folder)
        return folder / self.path.name

    def same(self, copy: PoolCopy) -> None:
        """It has what one has that read everything, and the state of the same."""
        whole = self.read_on(PoolCopy())
        for topic in POOL:
            assert rows(copy, topic) == rows(whole, topic)
        names = [SETTINGS.catalogue().name(topic) for topic in (CALLS, REWARDS)]
        states = [state_of(0, 1, each.store) for each in (copy, whole)]
        for name in names:
            assert len({state.expected(name) for state in states}) == 1
        waiting = [[image.record for image in state.waiting()] for state in states]
        assert waiting[0] == waiting[1]
        whole.close()


def rows(copy: PoolCopy, topic) -> list:
    return sorted(copy.store.topic(topic.name))


def history(dice: random.Random) -> list:
    events = pool.load(groups=5, members=3, prefix="g")
    events += [facts.opened("open"), *pool.episode("open", "t")[:2]]
    at = len(events) // 2
    return [*events[:at], facts.evicted_group("g0"), *events[at:], facts.evicted_group("g3")]


@pytest.mark.parametrize("seed", range(8))
def test_killed_anywhere_the_next_one_has_the_pool(tmp_path, seed):
    """Before a commit, behind one that nobody heard of, or between a commit and the file: it holds committed rows alone."""
    dice = random.Random(seed)
    house = House(tmp_path / "a.view", history(dice))
    owned = house.owner()
    images, spared = itertools.count(), []

    def killed() -> OwnedPartition:
        left = house.image(tmp_path / str(next(images)))
        owned.close()  # of the process: what it would have saved at its end is not looked at
        shutil.copytree(left.parent, house.path.parent, dirs_exist_ok=True)
        house.path.with_suffix(".sum").unlink(missing_ok=True)
        for journal in house.path.parent.glob(f"{house.path.name}-*"):
            if not (left.parent / journal.name).exists():
                journal.unlink()
        with closing(house.copy(left)) as copy:
            tail = house.tail
            house.same(copy)
            spared.append(house.tail - tail)
        return house.owner()

    for _ in range(25):
        house.fold(owned, dice.randint(0, 4))
        batch = owned.take()
        what = dice.choice(
            (
                "commit",
                "commit and keep",
                "commit and keep",
                "commit and keep",
                "killed before",
                "killed behind",
                "unheard",
            )
        )
        if what == "killed before":
            owned = killed()
            continue
        if what == "unheard":
            owned._producer.commit(batch[1])
            owned = killed()
            continue
        owned.commit(batch)
        if what == "commit and keep":
            house.keep(owned)
        if what == "killed behind":
            owned = killed()
    house.write(owned)
    owned.close()
    with closing(house.copy()) as copy:
        house.same(copy)
    assert max(spared) > 0, "something was read from a file"


def folded(path: Path) -> House:
    """A partition of which all is folded, with a file that was closed in order."""
    house = House(path, history(random.Random(1)))
    owned = house.owner()
    house.write(owned)
    house.keep(owned)
    owned.close()
    return house


def test_a_start_reads_what_was_written_since_the_time_before_the_last_save(tmp_path):
    """The offsets of a save are those before the commit that shows that nobody else wrote behind them."""
    house = folded(tmp_path / "a.view")
    owned, first = house.owner(), house.tail
    for number in range(3):
        house.say(pool.episode(f"late{number}", "t"))
        house.write(owned)
        house.keep(owned)
    owned.close()
    with closing(house.copy()) as copy:
        assert 0 < house.tail < 12 < first, (house.tail, first)
        house.same(copy)


def test_a_batch_that_was_not_committed_is_in_no_file(tmp_path):
    """Its partition is given up in order, as after a commit that was fenced."""
    house = folded(tmp_path / "a.view")
    owned = house.owner()
    house.say(pool.episode("uncommitted", "t"))
    house.fold(owned, 1000)
    owned.take()
    owned.close()
    with closing(house.copy()) as copy:
        house.same(copy)


def test_what_somebody_else_wrote_is_read(tmp_path):
    """A worker that is fenced asks for the ends as ever: it moves no offset by what it was told after its last commit."""
    house = folded(tmp_path / "a.view")
    late = house.owner()
    house.say(pool.episode("own", "t"))
    house.write(late)
    other = House(tmp_path / "another" / "a.view")
    other.log = house.log
    owner = other.owner()
    house.say(pool.episode("others", "t"))
    other.fold(owner, 1000)
    owner.commit(owner.take())
    house.keep(late)
    house.keep(late)
    late.close()
    owner.close()
    with closing(house.copy()) as copy:
        house.same(copy)
        assert copy.store.group(group_key("others"))


@pytest.mark.parametrize(
    ("reason", "damage", "options"),
    [
        ("of other topics", None, {"log_id": "others"}),
        ("older than", None, {"now_s": 1e9 + AGE_MAX_S + 1}),
        ("clock went back", None, {"now_s": 1e9 - CLOCK_S - 1}),
        ("end before it", "log", {}),
        ("damaged", "file", {}),
    ],
)
def test_a_file_that_may_not_fit_the_log_is_begun_again(tmp_path, capsys, reason, damage, options):
    """As those of views are, by the same code: the log says why, in a line, and all is read."""
    path = tmp_path / "a.view"
    house = folded(path)
    if damage == "log":
        events = [one.event() for one in house.log.reader([CALLS, REWARDS]).read_to_end()]
        house.log = MemoryLog(SETTINGS)
        house.say(events[:3])
    if damage == "file":
        path.write_bytes(path.read_bytes()[:4096] + os.urandom(4096) + path.read_bytes()[8192:])
    house.now_s = options.pop("now_s", house.now_s)
    with closing(house.copy(**options)) as copy:
        house.same(copy)
        assert reason in capsys.readouterr().out
        assert copy.store.path == path, "it is written anew"
    with closing(house.copy(**options)):
        assert "begun_again" not in capsys.readouterr().out


def test_a_second_process_goes_on_from_what_the_first_saved_and_saves_nothing(tmp_path):
    """Another worker on this machine that takes over while the first still holds the file."""
    house = folded(tmp_path / "a.view")
    with closing(house.copy()) as first:
        house.say(pool.episode("late", "t"))
        owned = house.owner()
        assert house.tail < 200
        house.write(owned)
        before = house.path.read_bytes()
        house.keep(owned)
        owned.close()
        assert house.path.read_bytes() == before
        house.same(house.read_on(first))


def test_an_evicted_group_leaves_no_bytes_in_the_file(tmp_path):
    """Its rows are overwritten, in sqlite's journal as well."""
    house = House(tmp_path / "a.view", pool.episode("g", "a-secret-trajectory"))
    owned = house.owner()
    house.write(owned)
    house.keep(owned)
    assert b"a-secret-trajectory" in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    house.say([facts.evicted_group("g")])
    house.write(owned)
    house.keep(owned)
    assert b"a-secret-trajectory" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    owned.close()


def test_a_folder_that_is_closed_to_us_costs_the_file_alone(tmp_path, capsys):
    """Here a file stands where the folder would be."""
    (tmp_path / "views").write_text("")
    house = House(tmp_path / "views" / "a.view", history(random.Random(1)))
    owned = house.owner()
    house.write(owned)
    house.keep(owned)
    owned.close()
    assert "streams_copy_without_file" in capsys.readouterr().out


FULL = """
import random
import sys
from contextlib import closing
from pathlib import Path
from claw_r1.streams.errors import StoreFailed
from tests.streams import pool
from tests.streams.integration.test_pool_copies import House, folded
folder = Path(sys.argv[1])
house = folded(folder / "a.view")
owned = house.owner()
ballast = (folder / "ballast").open("wb", buffering=0)
try:
    while True:
        ballast.write(bytes(4096))
except OSError:
    pass
try:
    for number in range(1000):
        house.say(pool.episode(f"late{number}", "t"))
        house.write(owned)
        house.keep(owned)
except StoreFailed as error:
    print(error)
owned._copy.close(is_committed=False)
(folder / "ballast").unlink()
with closing(house.copy()) as copy:
    house.same(copy)
    print(house.tail)
"""


@pytest.mark.process
def test_a_disk_that_is_really_full_ends_the_worker_with_a_line_and_leaves_a_file_that_is_right(tmp_path):
    """The next one goes on from what was saved."""
    words, tail = run_on_small_disk(FULL, tmp_path, "3M")
    assert "disk is full" in words
    assert int(tail) > 0
