"""`claw demo`: one run of everything on this machine, from an untrained model to a measured result.

The main thread starts every process and looks after them while it waits: nothing is waited for without a deadline, and a
component that dies beyond its budget ends the demo with its name.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import orjson
import structlog

from claw_r1.claw.answers import Answer
from claw_r1.claw.demo.components import (
    GREEDY_EPISODES,
    GROUP_SIZE,
    GROUPS_PER_BATCH,
    LINGER_S,
    MODEL_ID,
    SESSION_IDLE_S,
    DemoComponents,
)
from claw_r1.claw.demo.display import Display
from claw_r1.claw.demo.observer import WATCHED, DemoProgress, Observer, calls_captured, trajectories
from claw_r1.claw.demo.report import Result, of_batches, plot, reward_first, targets
from claw_r1.claw.demo.settings import DemoSettings, RewardFrom
from claw_r1.claw.demo.summary import print_summary
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home, setup_command
from claw_r1.claw.keys.records import create
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.local.stack import DEMO_PARTITIONS, Stack, dashboard_port, remember
from claw_r1.claw.local.status_file import write_status
from claw_r1.claw.tls.tls_dir import door_url, secured_stack
from claw_r1.claw.workers.idle import idle_shares
from claw_r1.claw.workers.places import refuse_device
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.admin import check_catalogue, end_offsets, with_topics
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.modules import EXTRAS, absent
from claw_r1.runtime.processes.component import State
from claw_r1.runtime.processes.processes import Processes
from claw_r1.runtime.stop_signals import Interrupts
from claw_r1.schemas.envelopes import envelope, new_id, now_us
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import TOPICS

log = structlog.get_logger()

POLL_S = 0.1
GATHER_MS = 250  # the line that shows it is drawn as often
MODEL_TIMEOUT_S = 300
READY_TIMEOUT_S = 360  # of a tiny model; a worker alone waits as long as its engine moves (rollout's start_quiet_s)
EVALUATION_TIMEOUT_S = 120
TRAINING_TIMEOUT_S = 1200
SETTLE_TIMEOUT_S = LINGER_S + 60
KEY_VALID_US = 3600 * 1_000_000
LAST_WORDS_S = 10  # how long the log may be behind the trainer's exit


def run_demo(settings: DemoSettings, *, as_json: bool) -> Answer:
    """Runs the demo; exit code 0 when every target is met, 1 when one is missed, 130 after Ctrl-C.

    Raises CannotRun where a library is not installed, before anything is started.
    """
    if missing := sorted({name for extra in EXTRAS for name in absent(extra)}):
        raise CannotRun(f"the demo needs {', '.join(missing)}, which are not installed: {setup_command('demo')}")
    interrupts = Interrupts()
    try:
        with ExitStack() as resources:
            demo = Demo.open(settings, resources, Display(as_json=as_json), interrupts.check)
            result = demo.run()
    except KeyboardInterrupt:
        print("claw demo: interrupted, everything is stopped", file=sys.stderr)
        return Answer(code=130)
    reached = targets(
        result, control=settings.control, staleness_max=settings.staleness_max, exact=settings.reward.is_exact
    )
    print_summary(result, reached, demo.episodes(), demo.stack.run_dir, prefix=settings.prefix, to_stderr=as_json)
    return Answer(result, code=0 if all(target.met for target in reached) else 1)


class Demo:
    """The run: its processes, what it observes, and the order of its acts."""

    def __init__(
        self,
        settings: DemoSettings,
        stack: Stack,
        log_settings: LogSettings,
        processes: Processes,
        display: Display,
        started: float,
    ) -> None:
        self.settings = settings
        self.stack = stack
        self.started = started
        self._trainer_gone: float | None = None
        self._blind: BaseException | None = None
        self._log = log_settings
        self._processes = processes
        self._display = display
        self._start_offsets = end_offsets(log_settings, TOPICS)
        key = self._session_key() if settings.online else ""
        port, scorer_port = free_ports(2)
        self._components = DemoComponents(settings, stack, port, key, scorer_port)
        self._observer = Observer(self._components.run_id, log_settings.catalogue(), MODEL_ID)

    @classmethod
    def open(
        cls,
        settings: DemoSettings,
        resources: ExitStack,
        display: Display,
        interrupt: Callable[[], None] = lambda: None,
    ) -> "Demo":
        """Broker, topics and an empty run directory; `resources` stops everything in reverse order."""
        started = time.monotonic()
        refuse_device(settings.device)
        secured_stack(settings.tls_dir)
        run_id = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{new_id()[-4:]}"
        display.say("looking for a broker; where there is none, Kafka is started")
        broker = resources.enter_context(resolve_broker())
        display.say(broker.origin)
        log_settings = with_topics(
            LogSettings(bootstrap_servers=broker.bootstrap, prefix=settings.prefix, partitions=DEMO_PARTITIONS)
        )
        check_catalogue(log_settings, "operator")
        stack = Stack(
            run_dir=claw_home() / "runs" / run_id,
            bootstrap=broker.bootstrap,
            prefix=settings.prefix,
            partitions=log_settings.partitions,
            device=settings.device,
        )
        stack.run_dir.mkdir(parents=True)
        remember(stack.run_dir, log_settings)
        processes = resources.enter_context(Processes(partial(write_status, stack.run_dir), interrupt))
        resources.enter_context(display)
        return cls(settings, stack, log_settings, processes, display, started)

    def _session_key(self) -> str:
        """A key under which a conversation that falls silent is complete: all that the agents of `--online` are given."""
        terms = KeyRecorded(
            envelope=envelope("claw demo"),
            digest="",
            name=self.stack.run_dir.name,
            role="agent",
            expires_us=now_us() + KEY_VALID_US,
            idle_s=SESSION_IDLE_S,
        )
        return create(self._log, terms)[0]

    def run(self) -> Result:
        """All acts in order. Raises CannotRun or ComponentDied that names what did not come."""
        with self._observed():
            if self.settings.dashboard:
                port = dashboard_port()
                self._processes.start(self.stack.dashboard(port))
                self._display.say(f"the dashboard: {door_url(port)} (as long as the demo; `claw dashboard` later)")
            model = self._make_model()
            self._start_scorers()
            self._start_stack(model)
            greedy_before = self._evaluate("before")
            self._train()
            greedy_after = self._evaluate("after")
        return self._result(greedy_before, greedy_after)

    @contextmanager
    def _observed(self) -> Iterator[None]:
        reader = LogReader(self._log, WATCHED, start=self._start_offsets, gather_ms=GATHER_MS)
        follower = Follower(reader, self._observer.on_record, on_error=self._lost_sight)
        follower.start()
        try:
            yield
        finally:
            follower.stop()

    def _lost_sight(self, error: BaseException) -> None:
        self._blind = error

    def _make_model(self) -> Path:
        """The gateway and the streams start while the model is made."""
        self._processes.start(self._components.gateway())
        self._processes.start(self.stack.streams())
        self._display.say("making the tiny model (random weights, a short supervised warm-up; kept for the next run)")
        self._processes.start(self._components.model())
        self._processes.wait_finished("model", MODEL_TIMEOUT_S)
        from claw_r1.claw.demo.verbs.tiny_model import ensure  # the example's, which only a demo needs

        return ensure(self._components.models, self.settings.seed)

    def _start_stack(self, model: Path) -> None:
        self._display.say("starting vLLM and the trainer (about half a minute, and as much for each further worker)")
        for place in self._components.places:
            self._processes.start(self._components.rollout(place, model))
        self._processes.start(self._components.trainer(model))
        count = self.settings.workers
        self._wait("every worker with version 0", lambda p: p.workers_with(0) == count, READY_TIMEOUT_S)
        self._processes.wait_ready("gateway", READY_TIMEOUT_S)
        if self.settings.reward is not RewardFrom.AGENT:
            self._processes.wait_ready("rewards", READY_TIMEOUT_S)

    def _start_scorers(self) -> None:
        """Starts the scorers before the agents play; a reward model is made first, and starts beside the worker."""
        if self.settings.reward is RewardFrom.AGENT:
            return
        scorers = self._components.scorers
        if (maker := scorers.make_model()) is not None:
            self._display.say("making the tiny model that judges (a minute; kept for the next run)")
            self._processes.start(maker)
            self._processes.wait_finished(maker.name, MODEL_TIMEOUT_S)
        if (server := scorers.server()) is not None:
            self._processes.start(server)
            self._processes.wait_ready(server.name, READY_TIMEOUT_S)
        self._processes.start(scorers.scorer(self._log))

    def _evaluate(self, when: str) -> float:
        """Greedy episodes through the gateway on the val channel. Returns their mean reward."""
        self._display.say(f"greedy evaluation {when} training ({GREEDY_EPISODES} episodes)")
        evaluation = self._components.evaluation(when)
        self._processes.start(evaluation)
        self._processes.wait_finished(evaluation.name, EVALUATION_TIMEOUT_S)
        return float(orjson.loads(self._components.evaluation_file(when).read_bytes())["reward_mean"])

    def _train(self) -> None:
        """Agents play until the trainer has ended the run and every worker that lives serves its last version."""
        batch = f"{GROUPS_PER_BATCH} groups of {GROUP_SIZE} episodes"
        if self.settings.online:
            batch = f"{GROUPS_PER_BATCH * GROUP_SIZE} conversations of people, judged by them,"
        self._display.say(f"training: {batch} per batch")
        self._processes.start(self._components.agents())
        self._wait("the end of the run", lambda p: p.ended is not None, TRAINING_TIMEOUT_S)
        self._processes.stop_one("agents")
        self._wait("the workers with the last version", DemoProgress.is_settled, SETTLE_TIMEOUT_S)
        self._processes.wait_finished("trainer", SETTLE_TIMEOUT_S)

    def _wait(self, what: str, condition: Callable[[DemoProgress], bool], timeout_s: float) -> None:
        """Looks after the processes and shows progress until the condition holds. Raises CannotRun after the deadline."""
        deadline = time.monotonic() + timeout_s
        while not self._observer.wait_for(condition, POLL_S):
            self._look_after(what)
            self._display.show(self._observer.progress, time.monotonic() - self.started)
            if time.monotonic() > deadline:
                raise CannotRun(
                    f"waited {timeout_s:.0f} s for {what} in vain; the logs are in {self.stack.run_dir / 'logs'}"
                )
        self._display.show(self._observer.progress, time.monotonic() - self.started)

    def _look_after(self, what: str) -> None:
        """Raises CannotRun when what is waited for can no longer come, ComponentDied when a budget is spent."""
        states = {state.component: state.state for state in self._processes.poll()}
        if self._blind is not None:
            raise CannotRun(f"the log can no longer be followed: {self._blind}")
        if states.get("trainer") is not State.FINISHED or self._observer.progress.ended is not None:
            return
        self._trainer_gone = self._trainer_gone or time.monotonic()
        if time.monotonic() - self._trainer_gone > LAST_WORDS_S:
            raise CannotRun(
                f"the trainer stopped before the end of the run (waiting for {what}); its log is in {self.stack.run_dir / 'logs'}"
            )

    def _result(self, greedy_before: float, greedy_after: float) -> Result:
        """Reads the log once more: what is reported is what stands there, not what was seen in passing."""
        progress = self._observer.progress
        title = f"verbs, seed {self.settings.seed}, learning rate {self.settings.learning_rate:g}"
        picture = plot(progress.batches, self.stack.run_dir / "reward.png", title=title)
        stats = [orjson.loads(file.read_bytes()) for file in (self._components.agents_file(), *self.episodes())]
        calls = calls_captured(self._log, self._start_offsets)
        return Result(
            reward=str(self.settings.reward),
            protocol=str(self.settings.protocol),
            reward_first=reward_first(trajectories(self._log, self._start_offsets), self._components.run_id),
            greedy_before=greedy_before,
            greedy_after=greedy_after,
            calls_captured=sum(calls.values()),
            calls_by_worker=calls,
            workers=self.settings.workers,
            idle=idle_shares(progress.reports, progress.batches),
            calls_replied=sum(counts["calls_replied"] for counts in stats),
            calls_unanswered=sum(counts["calls_unanswered"] for counts in stats),
            dead_letters=progress.dead_letters,
            seconds=round(time.monotonic() - self.started, 1),
            plot=str(picture),
            **of_batches(progress.batches),
        )

    def episodes(self) -> tuple[Path, Path]:
        """Files with the transcripts of the greedy episodes before and after."""
        return self._components.evaluation_file("before"), self._components.evaluation_file("after")
