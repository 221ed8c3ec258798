"""Writes the boards of boards.yaml as files that Grafana provisions: `python infra/grafana/write.py FOLDER`.

Each asks the data source that Grafana calls its default one, Prometheus with claw's targets (docs/runbook.md).
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

BOARDS = Path(__file__).with_name("boards.yaml")
RANGE, GRAFANAS = "$range", "$__rate_interval"
WIDTH, HEIGHT, PER_ROW = 8, 8, 3
"""Width and height of a panel in units of Grafana's grid, which is 24 wide, and panels side by side."""
SOURCE = {"type": "prometheus", "uid": "${source}"}

Panel = dict[str, Any]
"""A panel of boards.yaml: title, unit, queries, says."""


def main(arguments: list[str]) -> int:
    """Exit status of the command."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, panels in boards().items():
        path = folder / f"claw-{name}.json"
        path.write_text(json.dumps(board(name, panels), indent=1))
        print(path)
    return 0


def boards() -> dict[str, list[Panel]]:
    """Returns the panels of each board."""
    read: dict[str, list[Panel]] = yaml.safe_load(BOARDS.read_text())
    return read


def board(name: str, panels: list[Panel]) -> dict[str, Any]:  # JSON, as Grafana has it
    """Returns one board in Grafana's own format."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "uid": f"claw-{name}",
        "title": f"claw: {name}",
        "tags": ["claw"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "links": [{"type": "dashboards", "tags": ["claw"], "title": "claw", "asDropdown": True, "keepTime": True}],
        "templating": {"list": [source]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:  # JSON
    targets = [
        {"refId": chr(ord("A") + at), "expr": expr.replace(RANGE, GRAFANAS), "legendFormat": legend}
        for at, (legend, expr) in enumerate(panel["queries"].items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("says", ""),
        "datasource": SOURCE,
        "gridPos": {"w": WIDTH, "h": HEIGHT, "x": number % PER_ROW * WIDTH, "y": number // PER_ROW * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
        "targets": targets,
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
