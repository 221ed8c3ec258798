"""A node of a secured stack and the one password that its Kafka knows."""

import hashlib
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.kafka.cluster import LocalCluster
from claw_r1.claw.local.kafka.node import LocalBroker, new_cluster_id
from claw_r1.claw.tls.tls_dir import TlsDir


def begun_with(tls: TlsDir, folder: Path) -> Path:
    """A node's folder as its first start left it, without what Kafka keeps there."""
    (folder / "data").mkdir(parents=True)
    (folder / "password.sha256").write_text(hashlib.sha256(tls.password.read_bytes()).hexdigest())
    return folder


def overheard_java(folder: Path) -> Path:
    """A JAVA_HOME that is the machine's own Java, and writes down what `ps` shows of it."""
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {folder / "java" / "arguments"}\nexec {find_java()} "$@"\n')
    program.chmod(0o755)
    return program.parent.parent


def test_another_folders_password_is_refused_by_name(tmp_path: Path) -> None:
    """`claw demo --tls-dir A`, then `claw up --tls-dir B`: every client was refused, and nothing said why."""
    first, second = TlsDir(tmp_path / "a").prepared(), TlsDir(tmp_path / "b").prepared()
    folder = begun_with(first, tmp_path / "broker")
    LocalBroker(folder, tls=first).check_password()
    with pytest.raises(CannotRun, match=rf"Kafka in {folder} was begun with another password than {second.password}"):
        LocalBroker(folder, tls=second).start()
    second.password.write_text(first.password.read_text() + "\n")
    LocalBroker(folder, tls=second).check_password()


def test_each_node_of_a_cluster_is_looked_at_before_one_is_started(tmp_path: Path) -> None:
    first, second = TlsDir(tmp_path / "a").prepared(), TlsDir(tmp_path / "b").prepared()
    begun_with(first, tmp_path / "broker" / "node-3")
    with pytest.raises(CannotRun, match="node-3 was begun with another password"):
        LocalCluster(tmp_path / "broker", 3, tls=second).start()
    assert not (tmp_path / "broker" / "node-1").exists()


def test_a_folder_without_a_record_is_taken_as_it_is(tmp_path: Path) -> None:
    """One of an older version, whose password nobody wrote down; and one that was never formatted takes any."""
    tls = TlsDir(tmp_path / "tls").prepared()
    (tmp_path / "older" / "data").mkdir(parents=True)
    LocalBroker(tmp_path / "older", tls=tls).check_password()
    begun_with(TlsDir(tmp_path / "other").prepared(), tmp_path / "unfinished")
    (tmp_path / "unfinished" / "data").rmdir()
    LocalBroker(tmp_path / "unfinished", tls=tls).check_password()


@pytest.mark.kafka
def test_a_first_start_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    """Kafka had begun its format, of a cluster that nobody knows any more: each later start was refused by it."""
    (unfinished := tmp_path / "data.unfinished").mkdir()
    (unfinished / "meta.properties").write_text(f"version=1\ncluster.id={new_cluster_id()}\nnode.id=1\n")
    broker = LocalBroker(tmp_path)
    broker.launch()
    broker.kill()
    assert f"cluster.id={broker.cluster_id}" in (tmp_path / "data" / "meta.properties").read_text()


@pytest.mark.kafka
def test_a_format_that_fails_says_why(tmp_path: Path) -> None:
    """The line with Kafka's error, not the last line of its traceback."""
    with pytest.raises(CannotRun, match=r"cannot format .*Exception.*num\.partitions"):
        LocalBroker(tmp_path, more={"num.partitions": "none"}).launch()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_first_start_records_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readable by the owner alone, so in no command line; the same folder starts again, and one with another password does not
    while the node runs."""
    tls = TlsDir(tmp_path / "tls").prepared()
    monkeypatch.setenv("JAVA_HOME", str(overheard_java(tmp_path)))
    with LocalBroker(tmp_path / "broker", tls=tls):
        record = tmp_path / "broker" / "password.sha256"
        assert record.stat().st_mode & 0o077 == 0
        LocalBroker(tmp_path / "broker", tls=tls).start()
        with pytest.raises(CannotRun, match="another password"):
            LocalBroker(tmp_path / "broker", tls=TlsDir(tmp_path / "b").prepared()).start()
    words = (tmp_path / "java" / "arguments").read_text()
    assert "kafka.tools.StorageTool" in words
    assert tls.password.read_text().strip() not in words
    assert not (tmp_path / "broker" / "format.arguments").exists()
