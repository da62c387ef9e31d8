"""A node builds a program once, forked from its zygote: the same answer as from a new Python, and the same limits. One
zygote for all, and one cold start to compare with."""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.plans import make_launch, make_plan, make_spec
from tests.trainer.gang import RECIPES, Zygote, gang
from tests.waiting import wait_until
from worker_agent.daemon.probes.building import Builder, Built
from worker_agent.daemon.transfer.program_store import ProgramStore
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.machine.processes import identify
from worker_agent.protocol.codec import encode_plan
from worker_agent.protocol.commands import Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job.job_spec import CodeRef
from worker_agent.protocol.job.workload import Question, Stretch, Table
from worker_agent.protocol.plan import Trial
from worker_agent.protocol.states import Cause, DeviceKind, Strategy
from worker_agent.replica.folder import PLAN_FILE
from worker_agent.trainer.trial.measuring import _step_s

pytestmark = pytest.mark.tf

Build = Callable[..., Built]

OF_PROBE = {"trains", "build_limit_s", "question"}

SOUND = """
import json, os, resource, signal, time
import keras
import tensorflow as tf

def build_model(params):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model

def build_stages(params, count):
    return ([["dense"], ["dense_1"]] + [[]] * count)[:count]

def build_dataset(params, split):
    return tf.data.Dataset.from_tensor_slices((tf.ones((100, 3)), tf.ones((100, 2)))) if split == "train" else None
"""
TELLS = """
umask = os.umask(0o022)
names = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG", "TRAINYARD_ROLE", "OF_THE_JOB")
about = {name: os.environ.get(name) for name in names}
about |= {"scratch": os.environ["TMPDIR"] == os.path.join(os.path.dirname(os.getcwd()), "scratch"), "umask": umask}
about |= {"leads": os.getpgid(0) == os.getpid(), "input": os.path.samefile("/dev/stdin", os.devnull)}
about |= {"limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_CORE)]}
about |= {"nice": os.nice(0), "for_memory": open("/proc/self/oom_score_adj").read().strip()}
json.dump(about, open(PLACE, "w"))
"""
STAYS = """
open(PLACE, "w").write(str(os.getpid()))
time.sleep(60)
"""
LEAVES_A_CHILD = """
if os.fork() == 0:
    os.setsid()
    open(PLACE, "w").write(str(os.getpid()))
    time.sleep(60)
while not os.path.exists(PLACE) or not open(PLACE).read():
    time.sleep(0.01)
"""
ENDS_ITS_SHIM = """
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, keras3: Zygote) -> Zygotes:
    """The agent's side of the zygote that runs already."""
    zygotes = Zygotes(tmp_path_factory.mktemp("agent"), enabled=True)
    ours = zygotes._zygotes["keras3"]
    ours._socket, ours._process = str(keras3._socket), keras3._process
    return zygotes


@pytest.fixture
def build(tmp_path: Path, warm: Zygotes) -> Build:
    """Build a program, as the node does that was asked to."""

    def build(
        text: str, *, zygotes: Zygotes = warm, wait: Callable[[float], bool] | None = None, **asked: Any
    ) -> Built:
        digest = hashlib.sha256(text.encode()).hexdigest()
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / digest).write_text(text)
        gpus = asked.pop("gpus", True)
        probe = {"trains": False, "build_limit_s": 100.0} | {name: asked.pop(name) for name in OF_PROBE & asked.keys()}
        spec = make_spec(code=CodeRef(sha256=digest, entry="recipe.py"), **asked)
        builder = Builder(tmp_path, ProgramStore(tmp_path, None), zygotes)  # type: ignore[arg-type]
        built = builder.build(make_probe(spec=spec, **probe), wait=wait or threading.Event().wait, gpus=gpus)
        assert list((tmp_path / "probes").iterdir()) == [], "nothing stays"
        return built

    return build


def make_probe(**values: Any) -> Probe:
    return Probe(
        command_id=1,
        preflight_id=5,
        key="",
        node="a",
        own=[],
        others=[],
        devices=[0],
        device_kind=DeviceKind.CPU,
        builds=True,
        **values,
    )


def the_one(built: Built) -> Finding:
    (finding,) = built[0]
    return finding


def test_a_fork_answers_as_a_new_python_does(build: Build, tmp_path: Path) -> None:
    cold, warm = tmp_path / "cold.json", tmp_path / "warm.json"
    asked: dict[str, Any] = {"trains": True, "env": {"OF_THE_JOB": "1"}, "global_batch_size": 32}
    expected = build(SOUND + TELLS.replace("PLACE", repr(str(cold))), zygotes=Zygotes(tmp_path, enabled=False), **asked)
    assert build(SOUND + TELLS.replace("PLACE", repr(str(warm))), **asked) == expected
    assert expected[0] == []
    assert expected[1]["First batch"] == "32 rows, one step done"
    told = json.loads(warm.read_text())
    assert told == json.loads(cold.read_text())
    assert (told["scratch"], told["leads"], told["input"], told["nice"]) == (True, True, True, 19)


def test_one_that_a_job_waits_for_stands_behind_nothing_and_trains_nothing(build: Build, tmp_path: Path) -> None:
    place = tmp_path / "told.json"
    findings, facts, *_ = build(SOUND + TELLS.replace("PLACE", repr(str(place))))
    assert findings == []
    assert "First batch" not in facts
    assert (facts["Rows"], facts["Parameters"]) == ("100", "26")
    assert json.loads(place.read_text())["nice"] == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            {"strategy": Strategy.PIPELINE, "devices_per_worker": 3, "global_batch_size": 32},
            ("build_stages() left a stage of 3 without layers", "Use fewer devices, or a deeper model"),
        ),
        (
            {"strategy": Strategy.ONE_DEVICE, "devices_per_worker": 1, "global_batch_size": 128},
            (
                "The training set has 100 rows, fewer than the global batch of 128",
                "Choose a smaller batch, or give it more rows",
            ),
        ),
    ],
)
def test_what_the_training_would_refuse_is_certain(
    build: Build, keras3: Zygote, tmp_path: Path, asked: dict[str, Any], told: tuple[str, str]
) -> None:
    finding = the_one(build(SOUND, **asked))
    assert (finding.why, finding.remedy, finding.blocks, finding.certain) == (*told, True, True)
    (tmp_path / "recipe.py").write_text(SOUND)
    strategy, devices = asked.pop("strategy"), asked.pop("devices_per_worker")
    training = gang(tmp_path / "gang", tmp_path / "recipe.py", strategy, devices=devices, **asked)
    training.start(keras3).wait()
    failure = training.members[0].failure()
    assert failure is not None
    why, remedy = told
    assert failure.message == f"{why}: {remedy[0].lower()}{remedy[1:]}.", "the training says the same"


@pytest.mark.parametrize("gpus", [False, True])
def test_gpus_that_it_asks_for_leave_that_certain_where_there_are_none(build: Build, *, gpus: bool) -> None:
    usual = (
        "for gpu in tf.config.list_physical_devices('GPU'):\n    tf.config.experimental.set_memory_growth(gpu, True)"
    )
    asked: dict[str, Any] = {"strategy": Strategy.ONE_DEVICE, "global_batch_size": 128, "gpus": gpus}
    assert the_one(build(f"{SOUND}\n{usual}\n", **asked)).certain is not gpus


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("raise ValueError('no such layer')", "ValueError: no such layer (in recipe.py, line 17, <module>)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed by signal 9 (SIGKILL)"),
        ("print('over'); os._exit(3)", "the process ended with exit code 3; its last lines were: over"),
    ],
)
def test_what_the_program_does_by_itself_is_not(build: Build, line: str, why: str) -> None:
    finding = the_one(build(f"{SOUND}\n{line}\n"))
    assert (finding.why, finding.certain) == (why, False)


@pytest.mark.parametrize("name", ["OF_THE_JOB", "TF_READ_AT_IMPORT"], ids=["forked", "with an interpreter of its own"])
def test_nothing_that_it_started_runs_on(build: Build, tmp_path: Path, name: str) -> None:
    place = tmp_path / "pid"
    built = build(SOUND + LEAVES_A_CHILD.replace("PLACE", repr(str(place))), env={name: "1"})
    assert (built.findings, built.tried) == ([], True)
    assert identify(int(place.read_text())) is None


@pytest.mark.parametrize("enabled", [True, False], ids=["warm", "cold"])
def test_nor_does_it_when_the_program_has_ended_its_shim(
    build: Build, warm: Zygotes, tmp_path: Path, *, enabled: bool
) -> None:
    place = tmp_path / "pid"
    finding = the_one(
        build(
            SOUND + LEAVES_A_CHILD.replace("PLACE", repr(str(place))) + ENDS_ITS_SHIM,
            zygotes=warm if enabled else Zygotes(tmp_path, enabled=False),
        )
    )
    assert finding.why == "it ended its watcher, too"
    assert not finding.certain
    assert identify(int(place.read_text())) is None


def test_one_that_does_not_end_is_ended(build: Build, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    finding = the_one(build(SOUND + STAYS.replace("PLACE", repr(str(place))), build_limit_s=5.0))
    assert (finding.what, finding.blocks) == ("the program was not built in time", False)
    assert identify(int(place.read_text())) is None


def test_it_ends_when_nobody_waits_any_more(build: Build, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    build(SOUND + STAYS.replace("PLACE", repr(str(place))), wait=lambda _: place.exists() and bool(place.read_text()))
    assert identify(int(place.read_text())) is None


def test_it_ends_with_the_next_agent(tmp_path: Path, warm: Zygotes) -> None:
    """Where its own was killed."""
    folder, place = tmp_path / "probes" / "5", tmp_path / "pid"
    launch = make_launch(spec=make_spec(time_limit_s=100), devices=[])
    plan = msgspec.structs.replace(make_plan(folder, launch), trial=Trial(trains=False))
    Path(plan.entry).write_text(SOUND + STAYS.replace("PLACE", repr(str(place))))
    (folder / PLAN_FILE).write_bytes(encode_plan(plan))
    warm.start_shim(folder / PLAN_FILE, plan.launch, wait=threading.Event().wait)
    wait_until(lambda: place.exists() and place.read_text())
    Builder(tmp_path, ProgramStore(tmp_path, None), warm)  # type: ignore[arg-type]
    wait_until(lambda: identify(int(place.read_text())) is None)


def test_the_zygote_is_as_it_was_and_forks_trainings(build: Build, keras3: Zygote, tmp_path: Path) -> None:
    assert build(SOUND)[0] == []
    assert len(list(Path(f"/proc/{keras3._process.pid}/task").iterdir())) == 1
    trained = gang(tmp_path / "gang", RECIPES / "digits_mlp.py", Strategy.ONE_DEVICE, epochs=1, global_batch_size=512)
    trained.start(keras3).wait()
    (worker,) = trained.members
    assert worker.exit().cause is Cause.COMPLETED, worker.log()


EMBEDS = """
import keras
import tensorflow as tf

def build_model(params):
    model = keras.Sequential([keras.Input((5,), dtype="int32"), keras.layers.Embedding(1000, 8),
                              keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    return model

def build_dataset(params, split):
    rows = tf.data.Dataset.from_tensor_slices((tf.ones((100, 5), tf.int32), tf.ones((100, 2))))
    return rows if split == "train" else None
"""


def test_a_model_is_measured(build: Build) -> None:
    stretch = Stretch(cores=1, batches=[16, 32, 1000])
    findings, _, model, _ = build(EMBEDS, global_batch_size=32, question=Question(stretches=[stretch], seconds=30))
    assert findings == []
    assert model is not None
    assert (model.parameters, model.variables, model.slots) == (8000 + 82, 3, 2.0)
    assert model.tables == [Table(rows=1000, row_bytes=32, touched=5.0)]
    assert (model.dense_bytes, model.largest_bytes) == (82 * 4, 32_000)
    assert model.activation_bytes == (40 + 40 + 2) * 4
    assert model.flops >= 3 * 2 * 40 * 2 / 2
    assert model.examples == 100
    (timed,) = model.timed
    assert timed.cores == 1
    assert [batch for batch, _ in timed.step_ms] == [16, 32], "no epoch fills the third"
    assert all(0 < ms < 1000 for _, ms in timed.step_ms)
    assert 0 < timed.apply_ms < 1000


def test_a_question_without_stretches_times_nothing(build: Build) -> None:
    _, _, model, _ = build(SOUND, question=Question())
    assert model is not None
    assert (model.parameters, model.slots, model.tables, model.timed) == (26, 0.0, [], [])


def test_slow_steps_are_measured_no_longer_than_there_is_time() -> None:
    began = time.monotonic()
    assert _step_s(lambda count: time.sleep(0.1 * count), 60.0, began + 0.5) == pytest.approx(0.1, rel=0.5)
    assert time.monotonic() - began < 5.0
