"""Renews the libraries of our pages: `python infra/vendor.py preact=11.2.0 …`, or without versions what the lock names.

npm fetches each package into a folder of its own and checks it against the registry; the files that pages load, and
its licence, are copied as they are, but for a last line where a package has no small module. `consumers/web/static/vendor/lock.json` says which, and a test compares. Needs npm; no test does.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[1] / "consumers/web/static/vendor"
FILES = {
    "preact": [("dist/preact.mjs", "preact.js"), ("hooks/dist/hooks.mjs", "preact-hooks.js")],
    "htm": [("dist/htm.mjs", "htm.js")],
    "@preact/signals-core": [("dist/signals-core.mjs", "signals-core.js")],
    "@preact/signals": [("dist/signals.mjs", "signals.js")],
    "uplot": [("dist/uPlot.iife.min.js", "uplot.js"), ("dist/uPlot.min.css", "uplot.css")],
}
"""Package -> (path in it, name here)."""
LAST_LINES = {"uplot.js": b"export default uPlot;\n"}
"""uPlot's module is three times the size of its script."""


def main(arguments: list[str]) -> None:
    """Writes the files and the lock."""
    path = VENDOR / "lock.json"
    lock = json.loads(path.read_text()) if path.exists() else {}
    versions = {name: entry["version"] for name, entry in lock.items()}
    versions |= {name: version for name, _, version in (each.rpartition("=") for each in arguments)}
    lock = {name: renew(name, versions.get(name, "latest")) for name in FILES}
    path.write_text(json.dumps(lock, indent=2) + "\n")


def renew(name: str, version: str) -> dict[str, object]:
    """Fetches one package and copies what pages need of it; returns its entry of the lock."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, check=True, stdout=sys.stderr)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            manifest = json.loads(content(package, "package.json"))
            copied = [(local, content(package, path) + LAST_LINES.get(local, b"")) for path, local in FILES[name]]
            copied.append((f"LICENSE.{name.replace('/', '-').lstrip('@')}", content(package, "LICENSE")))
    for local, data in copied:
        (VENDOR / local).write_bytes(data)
    digests = {local: sha256(data).hexdigest() for local, data in copied}
    return {"version": manifest["version"], "license": manifest["license"], "sha256": digests}


def content(package: tarfile.TarFile, path: str) -> bytes:
    """A file of an npm package."""
    member = package.extractfile(f"package/{path}")
    assert member is not None, path
    return member.read()


if __name__ == "__main__":
    main(sys.argv[1:])
