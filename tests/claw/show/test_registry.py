"""`claw registry` as a process."""

import json
import ssl
import subprocess
import sys
import urllib.request
from io import BytesIO
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_reader

from claw_r1.claw.tls.tls_dir import TlsDir
from tests.schemas.examples import EVENTS, golden

pytestmark = pytest.mark.process
COMMAND = (sys.executable, "-m", "claw_r1.claw", "registry", "--prefix", "lab", "--port")


def test_it_needs_no_broker_and_ends_as_asked() -> None:
    """It prints its URL, answers, exits 0 after SIGTERM; a second one on its port is one line and exit 2."""
    with subprocess.Popen([*COMMAND, "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}/subjects", timeout=30) as reply:
                assert "lab.weights-value" in json.load(reply)
            second = [*COMMAND, url.rpartition(":")[2]]
            refused = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
            assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_it_speaks_tls_with_a_certificate_and_refuses_half_a_pair(tmp_path: Path) -> None:
    """Kafka's tools that ask by https get the same answers; a key without its certificate is one line and exit 2."""
    stack = TlsDir(tmp_path / "tls").prepared()
    trusted = ssl.create_default_context(cafile=stack.authority)
    with subprocess.Popen(
        [*COMMAND, "0", "--tls-certificate-file", stack.server], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("https://")
            with urllib.request.urlopen(f"{url}/subjects", timeout=30, context=trusted) as reply:
                assert "lab.weights-value" in json.load(reply)
        finally:
            process.terminate()
    half = [*COMMAND, "0", "--tls-key-file", str(stack.server)]
    refused = subprocess.run(half, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "tls_certificate_file" in refused.stderr


def test_its_versions_can_be_carried_into_another_registry() -> None:
    """Each line is the body of a registration in IMPORT mode; ids are those on the wire, so what stands on topics is read."""
    told = subprocess.run([*COMMAND[:4], "--export", "--prefix", "lab"], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert all(line.keys() == {"subject", "version", "id", "schema"} for line in lines)
    by_subject: dict[str, list[int]] = {}
    for line in lines:
        by_subject.setdefault(line["subject"], []).append(line["version"])
    assert all(versions == sorted(versions) for versions in by_subject.values())
    schemas = {line["id"]: parse_schema(json.loads(line["schema"]), {}) for line in lines}
    for name in EVENTS:
        wire = golden(name)
        assert schemaless_reader(BytesIO(wire[5:]), schemas[int.from_bytes(wire[1:5])], None), name
