"""How tests are spread over processes (`make test`): a file at a time, but those that press both cores one after the other in one
process; and a process that dies costs the one test that it ran.

xdist's own scheduler of files gives the dying test to the next process, again and again, and hands work to processes that
still collect, which ends the whole run by an internal error.
"""

import faulthandler
from collections.abc import Iterator, Sequence

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key as stderr_key  # pytest's own copy: fd 2 itself is captured
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

HEAVY = "heavy"
HEAVY_FILES = (
    "tests/e2e/test_survival.py",
    "tests/e2e/test_cluster_loop.py",
    "tests/e2e/test_hosts.py",
    "tests/rollout/integration/test_fleet_faults.py",
    "tests/rollout/integration/test_tensor_parallel.py",
    "tests/trainer/integration/test_lora_in_vllm.py",
    "tests/rollout/integration/test_real_worker.py",
    "tests/rollout/rewards/test_server.py",
    "tests/claw/demo/verbs/test_judge.py",
    "tests/claw/demo/models/test_tiny_model_served.py",
    "tests/gateway/integration/real_engine/test_chat.py",
    "tests/gateway/integration/real_engine/test_chat_tokens.py",
    "tests/gateway/integration/real_engine/test_responses.py",
    "tests/gateway/integration/real_engine/test_routes.py",
    "tests/gateway/integration/real_engine/test_tokens.py",
    "tests/gateway/integration/real_engine/test_messages.py",
    "tests/docs/test_own_environment.py",
)
"""Files that start an engine: two at once leave no time for what waits for them, and the gateway's share one."""


LAST_RESORT_S = 120.0
"""So long after its time limit a test that could not be interrupted (native code, another event loop's) ends its process."""


class FileScheduling(LoadFileScheduling):
    """xdist's `loadfile`, which survives its processes."""

    def remove_node(self, node: WorkerController) -> str | None:
        """The test at which a process died, if it had any left; what it had not begun goes to the others."""
        rest = [test for tests in self.assigned_work.pop(node).values() for test, done in tests.items() if not done]
        for test in rest[1:]:
            self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return rest[0] if rest else None

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """What a process can run, by name: one that came later for a dead one is no exception."""
        self.registered_collections[node] = list(collection)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return HEAVY if file in HEAVY_FILES else file

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # else it still collects, and is given work when it has
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Takes `--dist loadfile` over from xdist."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def first(item: pytest.Item, slow: bool) -> int:
    """When a test comes: what is heavy first, of which one process has work for as long as the others; then files with slow tests."""
    heavy = item.nodeid.split("::", 1)[0] in HEAVY_FILES
    return 0 if heavy else 1 if slow else 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that outlives its own time limit writes all stacks and ends its process: it must not hold up the whole run."""
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    if limit_s:
        faulthandler.dump_traceback_later(limit_s + LAST_RESORT_S, exit=True, file=item.config.stash.get(stderr_key, 2))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
