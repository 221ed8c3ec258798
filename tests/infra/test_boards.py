"""The boards for Grafana: they ask for metrics and labels that there are, in expressions that Prometheus takes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.debian_programs import ROOT
from tests.docs.metrics_page import ROOMS, described
from tests.infra.alerts import asked_for, promtool
from tests.infra.kubernetes.cluster import OVERLAYS, of_kind

WRITE = ROOT / "infra" / "grafana" / "write.py"
BOARDS = yaml.safe_load(WRITE.with_name("boards.yaml").read_text())
PANELS = [(name, panel) for name, panels in BOARDS.items() for panel in panels]
EXPRESSIONS = [expr.replace("$range", "5m") for _, panel in PANELS for expr in panel["queries"].values()]
OWN = {"instance", "job", "component", "le"}
"""Labels that Prometheus or a histogram adds."""

KAFKAS = re.compile(r"\bkafka_[a-z_()?]+_[a-z]+")
SHOWN = (
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_server_brokertopicmetrics_bytesinpersec_total",
    "kafka_server_brokertopicmetrics_bytesoutpersec_total",
    "kafka_consumergroup_lag",
)
"""Names that Strimzi's reporter gives brokers' metrics, and its exporter the lag of groups, as its own boards ask for them."""


def test_boards_ask_for_metrics_and_labels_that_there_are() -> None:
    """Names of claw alone: those of Kafka are its exporter's. Labels in braces, in `by (…)` and in legends."""
    known: dict[str, set[str]] = {"up": OWN}
    for registry in ROOMS.values():
        for row in described(registry()):
            known[row.name] = {*row.labels, *OWN}
    for name, panel in PANELS:
        for legend, expr in panel["queries"].items():
            asked = [(metric.removesuffix("_bucket"), matchers) for metric, matchers in asked_for(expr)]
            assert bool(asked) == (name != "kafka"), (panel["title"], expr)
            used = {label for _, matchers in asked for label, _, _ in matchers}
            used |= set(re.findall(r"{{(\w+)}}", legend))
            used |= {label for group in re.findall(r"by \(([^)]*)\)", expr) for label in re.split(r",\s*", group)}
            assert [metric for metric, _ in asked if metric not in known] == [], panel["title"]
            there = set().union(*(known[metric] for metric, _ in asked))
            assert not asked or used <= there, (panel["title"], used - there)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_room_of_our_brokers_is_seen(overlay: str) -> None:
    """Strimzi names a claim after the volume, the cluster, the pool and the broker; an older one after the cluster alone."""
    ((pool, manifest),) = of_kind(overlay, "KafkaNodePool").items()
    cluster = manifest["metadata"]["labels"]["strimzi.io/cluster"]
    claims = [f"data-{volume['id']}-{cluster}-{pool}-12" for volume in manifest["spec"]["storage"]["volumes"]]
    (expr,) = [expr for expr in EXPRESSIONS if "persistentvolumeclaim=~" in expr]
    (pattern,) = re.findall(r'persistentvolumeclaim=~"([^"]*)"', expr)
    for claim in (*claims, "data-mine-kafka-0", "data-0-mine-kafka-0"):
        assert re.fullmatch(pattern, claim), claim
    assert not re.fullmatch(pattern, "home-trainer-0")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_our_kafka_has_what_its_board_asks_for(overlay: str) -> None:
    """Each name of Kafka's is one that Strimzi's reporter or exporter gives, and both are on in our resource."""
    asked = {name for panel in BOARDS["kafka"] for text in panel["queries"].values() for name in KAFKAS.findall(text)}
    assert [name for name in asked if not any(re.fullmatch(name, shown) for shown in SHOWN)] == []
    spec = of_kind(overlay, "Kafka")["claw"]["spec"]
    assert spec["kafka"]["metricsConfig"] == {"type": "strimziMetricsReporter"}
    assert spec["kafkaExporter"] is not None


def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """By its own check of rules: each panel's expression as one."""
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(EXPRESSIONS)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([promtool(), "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_are_boards_of_grafana(tmp_path: Path) -> None:
    """One per board, with panels side by side that do not overlap; without a folder it says how it is called."""
    done = subprocess.run([sys.executable, str(WRITE), str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(BOARDS) == 7
    for name, panels in BOARDS.items():
        board = json.loads((tmp_path / f"claw-{name}.json").read_text())
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
        assert len(places) == len(panels) == len({panel["title"] for panel in board["panels"]})
        assert "$range" not in json.dumps(board)
    alone = subprocess.run([sys.executable, str(WRITE)], capture_output=True, text=True, timeout=60)
    assert (alone.returncode, "FOLDER" in alone.stderr) == (2, True)
