"""Apache Kafka's jars, from a repository of the test's own."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.jars import LOCK, Jar, kafka_jars, mirror_in_settings, read_lock, repository_url


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server without a log on stderr."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A directory served as a Maven repository, named by `CLAW_MAVEN_REPOSITORY`."""
    root = tmp_path / "repository"
    root.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CLAW_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}")
        yield root
    server.shutdown()
    server.server_close()


def publish(repository: Path, body: bytes, artifact: str = "kafka") -> str:
    """Puts a jar into the repository and returns its line for a lock."""
    jar = Jar("org.example", artifact, "1.0", hashlib.sha256(body).hexdigest())
    path = repository / jar.url_path
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    return f"org.example:{artifact}:1.0 {jar.sha256}"


def test_the_committed_lock_names_one_kafka_and_no_host() -> None:
    """The lock holds 47 coordinates with a sha256 each, one Kafka version, and no address."""
    jars = read_lock()
    assert len(jars) == 47 == len({jar.file_name for jar in jars})
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.3.1"}
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert "://" not in LOCK.read_text()


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path, repository: Path) -> None:
    """The cache serves when the repository is gone."""
    lock = tmp_path / "jars.lock"
    lock.write_text(publish(repository, b"one") + "\n" + publish(repository, b"two", "clients") + "\n")
    first = kafka_jars(lock, tmp_path)
    assert sorted(path.name for path in first.iterdir()) == ["clients-1.0.jar", "kafka-1.0.jar"]
    for path in sorted(repository.rglob("*.jar")):
        path.unlink()
    assert kafka_jars(lock, tmp_path) == first


def test_another_body_than_the_locked_one_is_refused_and_not_kept(tmp_path: Path, repository: Path) -> None:
    """A wrong sha256 is one clear error, and no file remains."""
    lock = tmp_path / "jars.lock"
    lock.write_text(publish(repository, b"right").replace(hashlib.sha256(b"right").hexdigest(), "0" * 64))
    with pytest.raises(CannotRun, match="not the locked one"):
        kafka_jars(lock, tmp_path)
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_missing_jar_is_named_with_the_way_out(tmp_path: Path, repository: Path) -> None:
    """The error names the jar and the setting."""
    lock = tmp_path / "jars.lock"
    lock.write_text(f"org.example:absent:1.0 {'0' * 64}\n")
    with pytest.raises(CannotRun, match=r"absent-1\.0\.jar.*CLAW_MAVEN_REPOSITORY"):
        kafka_jars(lock, tmp_path)


def test_a_mirror_of_everything_in_mavens_settings_is_used(tmp_path: Path) -> None:
    """Only a mirror that stands for the public repository counts."""
    settings = tmp_path / "settings.xml"
    mirror = "<settings xmlns='urn:x'><mirrors><mirror><mirrorOf>{}</mirrorOf><url>http://mirror</url></mirror></mirrors></settings>"
    settings.write_text(mirror.format("*,!internal"))
    assert mirror_in_settings(settings) == "http://mirror"
    settings.write_text(mirror.format("external:http:*"))
    assert mirror_in_settings(settings) is None
    assert mirror_in_settings(tmp_path / "absent.xml") is None


def test_without_a_setting_the_locked_maven_client_says_where() -> None:
    """The environment that the setup installs always knows a repository."""
    assert repository_url().startswith("http")
