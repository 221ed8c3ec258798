"""Our images, built on bases of Debian's packages, and a Kafka in one of them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import OTHER_IMAGE, image_at_hand, kafka_container
from tests.infra.dockerfile import IMAGES
from tests.infra.live.containers import TARGETS, Engine, found


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The container engine of this machine, or Debian's."""
    try:
        return found()
    except FileNotFoundError as error:
        pytest.skip(f"no container engine answers, and none is to be had ({error})")


@pytest.fixture(scope="session")
def images(engine: Engine) -> Engine:
    """The targets that were asked for, built."""
    tools = f"{Path(engine.build).parent}:{os.environ['PATH']}"
    if shutil.which("mmdebstrap", path=tools) is None:
        pytest.skip("no mmdebstrap, which makes the bases")
    bases = {"BASE": "claw-base", "BUILD_BASE": "claw-build-base"}
    common = {**os.environ, "PATH": tools, "CLAW_ENGINE": engine.build, "PYTHON": sys.executable}
    if not all(engine.has(f"{engine.registry}{name}") for name in bases.values()):
        subprocess.run([IMAGES / "debian_base.sh"], env=common | bases, check=True)
    ours = {name: f"{engine.registry}{base}" for name, base in bases.items()}
    build = common | ours | {"CLAW_BUILD_FLAGS": engine.build_flags, "CLAW_TAG": "test"}
    subprocess.run([IMAGES / "build.sh", *TARGETS], env=build, check=True)
    return engine


@pytest.fixture(scope="session")
def broker(images: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Kafka from our image, as all tests take it where an engine answers."""
    with pytest.MonkeyPatch.context() as patch, images.answering(tmp_path_factory.mktemp("engine")) as socket:
        patch.setenv("DOCKER_HOST", socket)
        patch.setenv(OTHER_IMAGE, images.image("kafka"))
        image = image_at_hand()
        assert image == images.image("kafka")
        with kafka_container(image) as bootstrap:
            yield bootstrap
