"""The metrics of a stack as a Prometheus beside it would have them, and the alerts that its rules raise over them.

A run of a minute says little of rules that wait for two: told `slower`, the same run is taken for one in which everything
takes so many times longer, timestamps and durations with it.
"""

import json
import math
import re
import subprocess
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.infra.alerts import ASKED, RULES, asked_for, promtool

EVERY_S = 1.0
ANSWER_S = 0.5
GONE = "stale"
TIMESTAMPS = ("_timestamp_seconds", "process_start_time_seconds")
DURATIONS = ("claw_trainer_batch_period_seconds", "claw_spool_oldest_age_seconds")
FIRED = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1d]))'
"""promtool prints what it did not expect; nothing is expected."""

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


class Recording:
    """Reads the targets in a folder of a stack, below `home`, each second from entering to leaving."""

    def __init__(self, home: Path) -> None:
        self.samples: dict[Series, dict[int, float | str]] = defaultdict(dict)
        self.families: set[str] = set()
        self._home = home
        self._ticks = 0
        self._begun_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def missing(self, expressions: Iterable[str], rooms: Iterable[str]) -> set[str]:
        """Returns what expressions ask of these rooms and was not there: metrics, and labels of them as `name{label}`."""
        labels: dict[str, set[str]] = defaultdict(set)
        for name, pairs in self.samples:
            labels[name] |= {label for label, _ in pairs}
        lacking = set()
        for name, matchers in (asked for each in expressions for asked in asked_for(each)):
            if not name.startswith(tuple(f"claw_{room}_" for room in rooms)):
                continue
            if name not in labels and re.sub("_(total|bucket)$", "", name) not in self.families:
                lacking.add(name)
            lacking |= {
                f"{name}{{{label}}}" for label, _, _ in matchers if name in labels and label not in labels[name]
            }
        return lacking

    def alerts(self, slower: int = 1) -> set[str]:
        """Returns the names of the alerts that fired."""
        interval_s = int(EVERY_S * slower)
        wanted = {series: values for series, values in self.samples.items() if series[0] in ASKED}
        test = {
            "interval": f"{interval_s}s",
            "input_series": [
                {"series": _text(series), "values": " ".join(self._values(series[0], values, slower))}
                for series, values in wanted.items()
            ],
            "promql_expr_test": [{"expr": FIRED, "eval_time": f"{self._ticks * interval_s}s", "exp_samples": []}],
        }
        path = self._home / "recorded.test.yaml"
        path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
        done = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        fired = set(re.findall(r'alertname="(\w+)"', said))
        assert bool(fired) == bool(done.returncode), said
        return fired

    def _record(self) -> None:
        self._begun_s = time.time()
        while not self._ended.wait(max(0.0, self._begun_s + self._ticks * EVERY_S - time.time())):
            for target in self._targets():
                self._read(target["targets"][0], target["labels"])
            self._leave(self._ticks)
            self._ticks += 1

    def _targets(self) -> list[Mapping]:
        found = []
        for path in self._home.rglob("targets.json"):
            try:
                found += json.loads(path.read_text())
            except (OSError, ValueError):
                continue  # the stack ends
        return found

    def _read(self, address: str, labels: Mapping[str, str]) -> None:
        own = {**labels, "instance": address}
        up: Series = ("up", _sorted(own))
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=ANSWER_S) as answer:
                text = answer.read().decode()
        except OSError:
            self.samples[up][self._ticks] = 0
            return
        self.samples[up][self._ticks] = 1
        for family in text_string_to_metric_families(text):
            self.families.add(family.name)
            for sample in family.samples:
                self.samples[sample.name, _sorted({**sample.labels, **own})][self._ticks] = sample.value

    def _leave(self, tick: int) -> None:
        """A series that this look did not find is gone, until it is found again."""
        for values in self.samples.values():
            if tick not in values and values.get(tick - 1, GONE) != GONE:
                values[tick] = GONE

    def _values(self, name: str, values: Mapping[int, float | str], slower: int) -> Iterator[str]:
        for tick in range(self._ticks):
            value = values.get(tick, "_")
            if isinstance(value, str) or not math.isfinite(value):
                yield value if isinstance(value, str) else "_"
            elif name.endswith(TIMESTAMPS) and value:
                yield repr((value - self._begun_s) * slower)
            else:
                yield repr(value * slower if name in DURATIONS else value)


def _sorted(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _text(series: Series) -> str:
    name, labels = series
    return f"{name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"
