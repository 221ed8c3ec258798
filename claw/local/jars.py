"""Fetches Apache Kafka: exactly the jars of `jars.lock` beside this file, each verified by its sha256 before it gets its name.

A file under its final name is therefore whole and right, and a fetch killed half-way is taken up where it stopped.
Standard library only: the setup runs it as `python -m claw_r1.claw.local.jars`.
"""

import concurrent.futures
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home, setup_command

LOCK = Path(__file__).with_name("jars.lock")  # in the package, so that a wheel has it
FETCH_THREADS = 8
READ_TIMEOUT_S = 30
TRIES = 3


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name in the class path."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def url_path(self) -> str:
        """Path below the root of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def read_lock(lock: Path = LOCK) -> list[Jar]:
    """The jars of a lock file: lines `group:artifact:version sha256`, comments with #. Raises `CannotRun` without it."""
    try:
        lines = lock.read_text().splitlines()
    except OSError as error:
        raise CannotRun(f"cannot read the list of Kafka's jars {lock} ({error.strerror}): install claw again") from None
    entries = [re.split("[: ]", line.strip()) for line in lines if line.strip() and not line.startswith("#")]
    return [Jar(group, artifact, version, sha256) for group, artifact, version, sha256 in entries]


def kafka_jars(lock: Path = LOCK, home: Path | None = None) -> Path:
    """A directory that holds all jars of `lock` and nothing else; what is missing is fetched first. Raises `CannotRun`."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12] if lock.exists() else "missing"
    directory = (home or claw_home()) / "cache" / "jars" / digest
    missing = [jar for jar in read_lock(lock) if not (directory / jar.file_name).exists()]
    if missing:
        directory.mkdir(parents=True, exist_ok=True)
        fetch(missing, directory, repository_url())
    return directory


def fetch(jars: list[Jar], directory: Path, repository: str) -> None:
    """Downloads `jars` into `directory`. Raises `CannotRun` naming the first jar that cannot be had or is not the locked one."""
    with concurrent.futures.ThreadPoolExecutor(FETCH_THREADS) as pool:
        waiting = [pool.submit(_fetch_one, jar, directory, repository) for jar in jars]
        try:
            for future in waiting:
                future.result()
        except CannotRun:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch_one(jar: Jar, directory: Path, repository: str) -> None:
    body = _download(f"{repository.rstrip('/')}/{jar.url_path}", jar)
    sha256 = hashlib.sha256(body).hexdigest()
    if sha256 != jar.sha256:
        raise CannotRun(
            f"{jar.file_name} from the Maven repository is not the locked one (sha256 {sha256}, locked {jar.sha256}): nothing was kept"
        )
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".fetch-", delete=False) as partial:
        partial.write(body)
    Path(partial.name).replace(directory / jar.file_name)


def _download(url: str, jar: Jar) -> bytes:
    for tries_left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as reply:
                return bytes(reply.read())
        except (OSError, ValueError) as error:
            answered_no = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if not tries_left or answered_no:
                raise CannotRun(
                    f"cannot fetch {jar.file_name}: {error}. Set CLAW_MAVEN_REPOSITORY to a Maven repository this machine may read"
                ) from None
    raise AssertionError("unreachable: the last try returns or raises")


def repository_url() -> str:
    """The Maven repository of this machine: `$CLAW_MAVEN_REPOSITORY`, a mirror in Maven's settings, else jgo's default.

    No registry host stands in our files. jgo (a Maven client on the Python index, pinned with its hash in the lock) carries
    the public default, as pip carries its own; it is read, not imported, so that its dependencies do not matter.
    """
    url = (
        os.environ.get("CLAW_MAVEN_REPOSITORY")
        or mirror_in_settings(Path.home() / ".m2" / "settings.xml")
        or _jgo_default()
    )
    if url is None:
        raise CannotRun(
            f"no Maven repository is known to fetch Kafka from: run `{setup_command()}`, set CLAW_MAVEN_REPOSITORY, "
            "or set KAFKA_BOOTSTRAP_SERVERS to a running broker"
        )
    return url


def mirror_in_settings(settings: Path) -> str | None:
    """The mirror of everything, or of `central`, that the user's Maven settings name."""
    try:
        root = ET.parse(settings).getroot()  # noqa: S314 - the user's own file, and the standard library is all there is
    except (OSError, ET.ParseError):
        return None
    for mirror in root.iterfind(".//{*}mirror"):
        of = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if of & {"*", "external:*", "central"}:
            return mirror.findtext("{*}url")
    return None


def _jgo_default() -> str | None:
    spec = importlib.util.find_spec("jgo")
    if spec is None or not spec.submodule_search_locations:
        return None
    constants = (Path(spec.submodule_search_locations[0]) / "constants.py").read_text()
    url = re.search(r"""^MAVEN_CENTRAL_URL\s*=\s*["'](.+)["']""", constants, re.MULTILINE)
    return url[1] if url else None


def main() -> int:
    """Fetches what is missing and prints the directory."""
    try:
        print(kafka_jars())
    except CannotRun as error:
        print(f"claw: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
