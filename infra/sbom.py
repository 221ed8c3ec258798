"""The wheel's bill of materials (CycloneDX 1.6, placed as PEP 770 says): what it carries of others, and what it fetches.

hatchling calls this when it builds a wheel. It has no clock and no random number, so that the same sources are the same bytes.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDORED = "consumers/web/static/vendor/lock.json"
JARS = "claw/local/jars.lock"
PACKAGES = "claw/install/locks/demo.txt"

Component = dict[str, Any]


class BillOfMaterials(BuildHookInterface):  # type: ignore[type-arg]  # of a configuration that it has not
    """Adds the bill to a wheel that travels; an editable install needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes the bill, for hatchling to copy."""
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory()  # as long as this hook
        path = Path(self._folder.name) / f"{self.metadata.name}.cdx.json"
        bill = bill_of(Path(self.root), self.metadata.name, self.metadata.version)
        path.write_text(json.dumps(bill, indent=1) + "\n")
        build_data["sbom_files"].append(str(path))


def bill_of(root: Path, name: str, version: str) -> Component:
    """The whole document."""
    licence = [{"expression": re.findall(r'^license = "(.+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)[0]}]
    itself = component("pypi", name, version, licenses=licence)
    parts = [*vendored(root / VENDORED), *jars(root / JARS), *packages(root / PACKAGES)]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**document, "metadata": {"component": itself}, "components": parts}


def vendored(lock: Path) -> Iterator[Component]:
    """The libraries of our pages, which lie in the wheel beside their licences."""
    for name, entry in json.loads(lock.read_text()).items():
        licences = [{"license": {"id": entry["license"]}}]
        yield component("npm", name, entry["version"], licenses=licences)


def jars(lock: Path) -> Iterator[Component]:
    """Apache Kafka's, which a local stack fetches."""
    for group, name, version, digest in re.findall(r"^([^:#\n]+):(\S+):(\S+) (\w+)$", lock.read_text(), re.MULTILINE):
        hashes = [{"alg": "SHA-256", "content": digest}]
        yield component("maven", f"{group}/{name}", version, scope="optional", hashes=hashes)


def packages(lock: Path) -> Iterator[Component]:
    """The packages that `claw setup demo` installs; each once, also where Pythons take different versions."""
    for name, version in sorted(set(re.findall(r"^([\w.-]+)==([\w.+!-]+)", lock.read_text(), re.MULTILINE))):
        yield component("pypi", name, version, scope="optional")


def component(kind: str, name: str, version: str, **fields: Any) -> Component:
    """One library by its package URL's `kind` and its name, `group/name` where the kind has groups."""
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    group, _, own = name.rpartition("/")
    grouped = {"group": group} if group else {}
    return {"type": "library", "bom-ref": purl, **grouped, "name": own, "version": version, "purl": purl, **fields}
