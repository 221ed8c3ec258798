"""The objects of infra/kubernetes as a cluster would get them: what `kubectl kustomize` makes of each overlay."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from claw_r1.claw.home import PROJECT

FOLDER = PROJECT / "infra" / "kubernetes"
OVERLAYS = ("demo", "gpu", "secure")
ROOMS = ("gateway", "streams", "rewards", "dashboard", "trainer", "rollout")
Object = dict[str, Any]  # JSON


@cache
def kustomize() -> tuple[str, ...] | None:
    """The program, with its verb."""
    for program, verb in (("kubectl", ("kustomize",)), ("kustomize", ("build",))):
        if found := shutil.which(program):
            return (found, *verb)
    return None


@cache
def objects(overlay: str) -> list[Object]:
    """The objects of an overlay; skips, by name, where there is no kustomize."""
    program = kustomize() or pytest.skip("no kubectl and no kustomize")
    environment = {**os.environ, "KUBECONFIG": os.devnull}  # it asks no cluster
    done = subprocess.run(
        [*program, FOLDER / "overlays" / overlay], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, kind: str) -> dict[str, Object]:
    """Name -> object."""
    return {each["metadata"]["name"]: each for each in objects(overlay) if each["kind"] == kind}


def workload(overlay: str, room: str) -> Object:
    """What starts a room's pods."""
    return next(
        each for kind in ("Deployment", "StatefulSet") for name, each in of_kind(overlay, kind).items() if name == room
    )


def pod(overlay: str, room: str) -> Object:
    spec: Object = workload(overlay, room)["spec"]["template"]["spec"]
    return spec


def container(overlay: str, room: str) -> Object:
    (only,) = pod(overlay, room)["containers"]
    return dict(only)


def variables(overlay: str, room: str) -> dict[str, str]:
    """What the room's container gets beside what its image says: the value, `secret` for one of a secret, a word for what a pod is told
    of itself."""
    maps = of_kind(overlay, "ConfigMap")
    said: dict[str, str] = {}
    for source in container(overlay, room).get("envFrom", ()):
        said |= maps[source["configMapRef"]["name"]]["data"]
    for each in container(overlay, room).get("env", ()):
        said[each["name"]] = (
            each["value"] if "value" in each else "secret" if "secretKeyRef" in each["valueFrom"] else "told"
        )
    return said


def mounts(overlay: str, room: str) -> Iterator[tuple[str, Object, bool]]:
    """Path, volume, whether it is for reading alone."""
    volumes = {each["name"]: each for each in pod(overlay, room)["volumes"]}
    for claim in workload(overlay, room)["spec"].get("volumeClaimTemplates", ()):
        volumes[claim["metadata"]["name"]] = {"persistentVolumeClaim": claim["spec"]}
    for each in container(overlay, room)["volumeMounts"]:
        volume = volumes[each["name"]]
        yield each["mountPath"], volume, bool(each.get("readOnly") or "configMap" in volume or "secret" in volume)
