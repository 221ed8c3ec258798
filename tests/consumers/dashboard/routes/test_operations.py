"""Operations: what only a broker knows is asked of a real one; dead letters go back after a dry run, by an operator alone."""

from collections.abc import Iterator

import httpx
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from claw_r1.consumers.dashboard.processes import ProcessWatch, other_rows
from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.kafka.reader import LogReader, commit_offsets
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.envelopes import envelope, now_us
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import CALLS, KEYS, Topic
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession
from tests.consumers import published
from tests.consumers.dashboard.overview_scene import worker
from tests.consumers.dashboard.stage import BrokerStage, DashboardStage
from tests.consumers.runs import observed

__all__ = ["browser"]
PATHS = ("processes", "topics", "letters")


def read(settings: LogSettings, topic: Topic) -> list[Record]:
    with LogReader(settings, [topic]) as reader:
        return list(reader.read_to_end())


@pytest.fixture
def broken(log_settings: LogSettings) -> LogSettings:
    """A fact, two that their reader refused with their dead letters, a fact elsewhere, and streams that have read one record."""
    refused = [published.outgoing(facts.call(call_id=text)) for text in PAYLOADS.values()]
    published.publish(log_settings, [published.outgoing(facts.call()), *refused[:2]])
    bad = read(log_settings, CALLS)[1:]
    letters = [dead_letter(record, "wrong_type", PAYLOADS["script"], reader="streams") for record in bad]
    published.publish(log_settings, letters)
    elsewhere = next(f"g{n}" for n in range(99) if partition_of(f"g{n}".encode(), 2) != bad[0].partition)
    published.publish(log_settings, [published.outgoing(facts.call(elsewhere))])
    place = f"{log_settings.prefix}.calls", bad[0].partition
    commit_offsets(log_settings, log_settings.catalogue().streams_group, {place: 1})
    return log_settings


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.slow
def test_a_real_broker_is_told_and_letters_are_redriven_once(broken: LogSettings, browser: Browser) -> None:
    """Lag and offsets; a dry run appends nothing, the redrive appends each letter once."""
    with BrokerStage(broken).served() as url, httpx.Client(base_url=f"{url}/api/v1/", timeout=30) as http:
        token = http.get("session").json()["token"]
        answers = {path: http.get(f"operations/{path}").json() for path in PATHS}
        told = {each["name"]: each for each in answers["processes"]["processes"]}
        group = told[f"{broken.prefix}.streams"]
        assert (group["lag"], group["alarm"], group["state"]) == (3, True, "nobody is at work")
        # the partition without a commit, too: it was read from nowhere
        assert {place["offset"]: place["behind"] for place in group["places"]} == {1: 2, None: 1}
        assert {"gateways", "this page"} <= told.keys()
        assert answers["processes"]["letters"] == http.get("overview/log").json()["dead_letters"] == 2
        (calls,) = [each for each in answers["topics"]["topics"] if each["topic"].endswith(".calls")]
        assert (calls["records"], answers["topics"]["missing"]) == (4, [])
        assert (answers["letters"]["total"], answers["letters"]["reasons"]) == (2, {"wrong_type": 2})
        ids = [letter["id"] for letter in answers["letters"]["letters"]]
        whole = http.get("operations/letter", params={"id": ids[0]}).json()
        assert (whole["value"]["type"], whole["hex"][:2]) == ("CallCaptured", "00")
        unknown = http.post("operations/redrive", json={"ids": ["0@99"]}, headers={"x-page-token": token})
        assert (unknown.status_code, "0@99" in unknown.json()["detail"]) == (422, True)

        one = BrowserSession(browser, url)
        page = one.open("/operations?tab=letters", waits_for=".letters li")
        page.get_by_role("button", name="choose all 2 here").click()
        page.get_by_role("button", name="Try to redrive 2 (dry run)").click()
        expect(page.locator(".plan")).to_contain_text("Would be appended")
        assert len(read(broken, CALLS)) == 4
        page.get_by_role("button", name="Redrive 2", exact=True).click()
        expect(page.get_by_text("All were redriven or dismissed.")).to_be_visible()
        assert len(read(broken, CALLS)) == 6
        assert http.get("operations/letters").json()["total"] == 0  # what was kept of before is forgotten
        home = http.get("overview/log").json()
        assert (home["dead_letters"], [each for each in home["alarms"] if "letters" in each["what"]]) == (0, [])
        again = http.post("operations/redrive", json={"ids": ids, "dry_run": False}, headers={"x-page-token": token})
        assert (again.json()["redriven"], sorted(again.json()["already"])) == ([], sorted(ids))
        assert len(read(broken, CALLS)) == 6
        page.get_by_role("link", name="Processes").click()
        expect(page.locator("main")).to_contain_text(f"{broken.prefix}.streams")
        expect(page.locator("main")).not_to_contain_text("dead letters wait")  # those that were redriven wait no more
        page.get_by_role("link", name="Topics").click()
        expect(page.locator("main")).to_contain_text(f"{broken.prefix}.weights")
        one.clean(page)


def test_the_time_to_catch_up_follows_from_the_last_two_minutes() -> None:
    """Of what shrinks, the rest at the rate at which it shrank; of what grows nobody can say; of nothing left, now."""
    clock = iter(range(0, 10_000_000_000, 10_000_000))
    watch = ProcessWatch(DashboardStage().log, lambda: next(clock))
    assert watch.tell("streams") == {"rate_per_s": None, "curve": [], "caught_up_s": None}
    for done in range(0, 300, 10):  # one record per second, of 400
        watch.sample({"streams": (done, 400 - done), "rewards": (done, done), "quick": (done, 0)})
    told = {name: watch.tell(name) for name in ("streams", "rewards", "quick")}
    assert [(each["rate_per_s"], each["caught_up_s"]) for each in told.values()] == [
        (1.0, 110.0),
        (1.0, None),
        (1.0, 0.0),
    ]
    assert told["streams"]["curve"][0] == [0, 400]
    for _ in range(200):
        watch.sample({"streams": (290, 110)})
    stuck = watch.tell("streams")
    assert (stuck["rate_per_s"], stuck["caught_up_s"], len(stuck["curve"])) == (0.0, None, 90)


def test_a_log_in_memory_says_that_it_has_no_broker() -> None:
    """A sentence and 501; workers are there, but for one that ended hours ago."""
    stage = DashboardStage()
    gone = replace(worker("gone", now_us() - 4_000_000_000), state="dead")
    stage.report(worker("w", now_us()), replace(worker("old", now_us()), state="dead"), gone)
    with stage.served() as url, httpx.Client(base_url=f"{url}/api/v1/") as http:
        http.get("session")
        statuses = {path: http.get(f"operations/{path}").status_code for path in PATHS}
        assert statuses == dict.fromkeys(PATHS, 501) | {"processes": 200}
        rows = http.get("operations/processes").json()["processes"]
        assert [each["name"] for each in rows if each["kind"] == "worker"] == ["w", "old"]


def test_every_run_at_work_is_a_row() -> None:
    """However many train at once; of those that are over the newest, where there is room."""
    now, state = now_us(), RunsState()
    words = [observed.at(observed.started(f"run{n}"), now / 1e6 - 60 * n) for n in range(6)]
    words += [observed.at(observed.ended(1, f"run{n}"), now / 1e6) for n in (0, 3)]
    for word in words:
        state.index.apply(word, word.envelope.occurred_at_us)
    assert [row["name"] for row in other_rows(state, now)] == ["run1", "run2", "run4", "run5"]
    later = now + 10 * 3_600_000_000
    assert [row["name"] for row in other_rows(state, later)] == ["run0", "run3", "run1"]


@pytest.fixture
def by_role() -> Iterator[dict[str, httpx.Client]]:
    """A client signed in for each role, on a log in memory."""
    stage, secrets = DashboardStage(), {}
    for role in ("annotator", "reader", "operator"):
        secrets[role], entry = new_key(role)
        record = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name=role, role=role)
        stage.log.producer().publish_now(KEYS, record.digest.encode(), record)
    with stage.served(keys=True) as url:
        clients = {role: httpx.Client(base_url=f"{url}/api/v1/") for role in secrets}
        for role, client in clients.items():
            client.headers["x-page-token"] = client.post("session", json={"key": secrets[role]}).json()["token"]
        yield clients
        for client in clients.values():
            client.close()


def test_operations_are_for_readers_and_redriving_for_operators(by_role: dict[str, httpx.Client]) -> None:
    """An annotator sees none of it; a reader writes nothing."""
    for path in PATHS:
        statuses = {role: http.get(f"operations/{path}").status_code for role, http in by_role.items()}
        assert statuses["annotator"] == 403
        assert statuses["reader"] == statuses["operator"] == (200 if path in ("workers", "processes") else 501)
    body = {"ids": ["0@0"], "dry_run": True}
    writes = {role: http.post("operations/redrive", json=body).status_code for role, http in by_role.items()}
    assert writes == {"annotator": 403, "reader": 403, "operator": 501}
