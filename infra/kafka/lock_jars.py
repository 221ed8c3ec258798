"""Developer tool: resolves Apache Kafka's broker and console tools and prints `jars.lock` (coordinate, sha256).

Run it in an environment of its own that holds jgo (`pip install jgo==3.2.0`):

    python infra/kafka/lock_jars.py > claw/local/jars.lock

`kafka_2.13` is the only root of the resolution: with a second root jgo silently picks kafka-clients 3.9.1. The other
two are single jars, added without their dependencies. 4.4.0 is not used because its tools jars cannot be resolved.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver

KAFKA = "4.3.1"
ROOT = f"org.apache.kafka:kafka_2.13:{KAFKA}"
SINGLE_JARS = ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", f"org.apache.kafka:kafka-tools:{KAFKA}"]
RUNTIME_SCOPES = {"compile", "runtime", None}


def resolve(cache: Path) -> dict[str, Path]:
    """Coordinate `group:artifact:version` -> jar on this machine; downloads into `cache`."""
    context = MavenContext(repo_cache=cache, resolver=PythonResolver())
    inputs, transitive = context.resolver.resolve([context.create_dependency(ROOT)])
    singles = [context.create_dependency(coordinate) for coordinate in SINGLE_JARS]
    chosen = [*inputs, *(d for d in transitive if d.scope in RUNTIME_SCOPES and d.type == "jar"), *singles]
    return {f"{d.groupId}:{d.artifactId}:{d.version}": d.artifact.resolve() for d in chosen}


def main() -> None:
    """Prints the lock, sorted, so that a change is a readable diff."""
    with tempfile.TemporaryDirectory() as cache:
        jars = resolve(Path(cache))
        print(
            f"# Apache Kafka {KAFKA}: {len(jars)} jars. Made by infra/kafka/lock_jars.py; fetched and verified by claw/local/jars.py."
        )
        for coordinate, path in sorted(jars.items()):
            print(coordinate, hashlib.sha256(path.read_bytes()).hexdigest())
    print(f"{len(jars)} jars", file=sys.stderr)


if __name__ == "__main__":
    main()
