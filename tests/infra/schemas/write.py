"""Writes the schemas beside this file: `python tests/infra/schemas/write.py STRIMZI`, in an environment with the packages that README.md
names. STRIMZI is the folder of the CRDs that Strimzi's generator wrote.

Words for people are left out, and what belongs to no kind that infra/ uses: the whole of it is 40 times as large.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
KINDS = {
    "deployment-apps-v1", "statefulset-apps-v1", "service-v1", "poddisruptionbudget-policy-v1", "networkpolicy-networking-v1",
    "configmap-v1", "namespace-v1", "serviceaccount-v1", "persistentvolumeclaim-v1",
}  # fmt: skip
SILENT = ("description", "title", "x-kubernetes-group-version-kind", "format", "example", "examples")


def bare(value: Any, *, names: bool = False) -> Any:
    """The same without words for people; `names`: of a mapping whose keys are names of fields."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if names or name not in SILENT or isinstance(each, dict)}
    return {
        name: bare(each, names=name in ("properties", "definitions", "$defs", "patternProperties"))
        for name, each in kept.items()
    }


def reachable(names: set[str], definitions: dict[str, Any]) -> set[str]:
    """The definitions that these name, one by another."""
    seen: set[str] = set()
    while more := names - seen:
        seen |= more
        text = json.dumps([definitions[name] for name in more])
        names = {part.partition('"')[0] for part in text.split("#/definitions/")[1:]}
    return seen


def strict(schema: Any) -> Any:
    """A CRD's schema that takes no field that it does not name, as `kubectl apply --validate=strict` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(each) for name, each in schema.items() if name != "x-kubernetes-validations"}
    if (
        "properties" in closed
        and schema.get("type") == "object"
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        closed.setdefault("additionalProperties", False)
    return closed


def write(name: str, schema: Any) -> None:
    path = HERE / name
    path.write_text(json.dumps(schema, indent=None, separators=(",", ":"), sort_keys=True) + "\n")
    print(path, path.stat().st_size)


def compose() -> None:
    import check_jsonschema

    vendor = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    write("compose.json", bare(json.loads((vendor / "compose-spec.json").read_text())))


def kubernetes() -> None:
    import kubernetes_validate

    folder = max((Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema").glob("v1.34*-local-strict"))
    definitions, schemas = (
        _read(folder / "_definitions.json")["$defs"],
        {kind: _read(folder / f"{kind}.json") for kind in sorted(KINDS)},
    )
    text = json.dumps(schemas)
    names = {part.partition('"')[0] for part in text.split("#/definitions/")[1:]}
    kept = {name: definitions[name] for name in sorted(reachable(names, definitions))}
    write("kubernetes.json", bare({"kinds": schemas, "definitions": kept}))


def _read(path: Path) -> Any:
    return json.loads(
        path.read_text()
        .replace("/api/_definitions.json#/$defs/", "#/definitions/")
        .replace('"#/$defs/', '"#/definitions/')
    )


def keda() -> None:
    from cloudcoil.models.keda.v1alpha1 import ScaledObject, TriggerAuthentication

    write(
        "keda.json",
        {
            each.__name__: bare(strict(each.model_json_schema(by_alias=True)))
            for each in (ScaledObject, TriggerAuthentication)
        },
    )


def strimzi(folder: Path) -> None:
    schemas = {}
    for path in sorted(folder.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())["spec"]
        (version,) = [each for each in crd["versions"] if each["name"] == "v1"]
        schema = version["schema"]["openAPIV3Schema"]
        del schema["properties"]["status"]
        schemas[crd["names"]["kind"]] = bare(strict(schema))
    write("strimzi.json", schemas)


if __name__ == "__main__":
    compose()
    kubernetes()
    keda()
    strimzi(Path(sys.argv[1]))
