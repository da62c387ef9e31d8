"""Points and records on their way into a sink: order, grouping, nothing lost."""

import io
import math
import threading
import time
from pathlib import Path

import pytest

from worker_agent.protocol import codec
from worker_agent.protocol.records import Phase, Points, Progress, Record
from worker_agent.replica.spool import Reader
from worker_agent.trainer import emit
from worker_agent.trainer.emit import RECORD_NUMBERS_MAX, Emitter, PrintSink, SpoolSink, grouped


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    pending_bytes = end = acknowledged = 0

    def write(self, records: list[Record]) -> None:
        self.records += records

    def close(self) -> None:
        self.closed = True


def test_neighbouring_points_of_the_same_scalars_become_one_record() -> None:
    phase = Phase(at=1.0, name="training")
    items = [(1, 0.5, {"loss": 2.0}), (2, 0.6, {"loss": 1.0}), phase, (3, 0.7, {"loss": 0.5}), (3, 0.7, {"acc": 1})]
    first, between, second, third = grouped(items)
    assert first == Points(names=["loss"], steps=[1, 2], times=[0.5, 0.6], values=[[2.0, 1.0]])
    assert between is phase
    assert second == Points(names=["loss"], steps=[3], times=[0.7], values=[[0.5]])
    assert third == Points(names=["acc"], steps=[3], times=[0.7], values=[[1.0]])


def test_a_long_run_is_cut_into_records_of_bounded_size() -> None:
    count = RECORD_NUMBERS_MAX
    records = list(grouped((step, 0.0, {"a": 1.0, "b": 2.0}) for step in range(count)))
    assert len(records) > 1
    assert [step for record in records for step in record.steps] == list(range(count))
    assert all(len(codec.encode(record)) < 1024 * 1024 for record in records)


def test_everything_said_is_in_the_sink_after_close_in_order() -> None:
    sink = Kept()
    emitter = Emitter(sink)
    for step in range(1000):
        emitter.log(step, {"loss": float(step), "rate": 0.1})
    emitter.phase("done")
    emitter.close()
    assert sink.records[-1].name == "done"
    points = [record for record in sink.records if isinstance(record, Points)]
    assert [step for record in points for step in record.steps] == list(range(1000))
    assert [value for record in points for value in record.values[0]] == [float(step) for step in range(1000)]


def test_the_spool_holds_what_was_said_and_no_agent_is_needed(tmp_path: Path) -> None:
    emitter = Emitter(SpoolSink(tmp_path / "trainer", notify=str(tmp_path / "nobody.sock")))
    emitter.log(7, {"loss": math.nan})
    emitter.close()
    (payload,) = Reader(tmp_path / "trainer").read().records
    record = codec.decode_record(payload)
    assert record.steps == [7]
    assert math.isnan(record.values[0][0])


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SpoolSink(tmp_path / "trainer", notify="")
    emitter = Emitter(sink)
    with monkeypatch.context() as full:
        full.setattr(sink, "flush", _refuse)
        emitter.log(1, {"loss": 1.0})
        emitter.flush()
        assert sink.pending_bytes
        assert Reader(tmp_path / "trainer").read().records == []
    emitter.close()
    assert not sink.pending_bytes
    assert len(Reader(tmp_path / "trainer").read().records) == 1


def test_a_training_that_ends_while_the_disk_is_full_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SpoolSink(tmp_path / "trainer", notify="")
    emitter = Emitter(sink)
    with monkeypatch.context() as full:
        full.setattr(sink, "flush", _refuse)
        emitter.log(1, {"loss": 1.0})
        leaving = threading.Thread(target=emitter.close)
        leaving.start()
        leaving.join(0.3)
        assert leaving.is_alive()
    leaving.join(5)
    assert not leaving.is_alive()
    assert len(Reader(tmp_path / "trainer").read().records) == 1


def test_what_cannot_be_written_down_does_not_end_the_writing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    emitter = Emitter(SpoolSink(tmp_path / "trainer", notify=""))
    for step, name in ((1, "half of a character \ud800"), (2**70, "far"), (3, "loss")):
        emitter.log(step, {name: 1.0})
        emitter.flush()
    emitter.close()
    (payload,) = Reader(tmp_path / "trainer").read().records
    assert codec.decode_record(payload).names == ["loss"]
    assert capfd.readouterr().err.count("was left out") == 2


def test_a_terminal_gets_progress_but_not_every_step() -> None:
    out = io.StringIO()
    sink = PrintSink(out)
    for step in range(1, 100):
        loss = Points(names=["loss"], steps=[step], times=[float(step)], values=[[1 / step]])
        sink.write([loss, Progress(at=100 + step / 50, step=step, total_steps=99, epoch=1, epochs=1)])
    sink.write([Phase(at=200.0, name="saving")])
    lines = out.getvalue().splitlines()
    assert lines[0] == "epoch 1/1  step 1/99  loss 1.0000"
    assert len(lines) == 2
    assert lines[-1] == "saving"


def _refuse() -> None:
    raise OSError("no space left on device")


class Writes(Kept):
    """A sink that keeps when it was given what, and lets wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Record]] = []
        self.came = threading.Semaphore(0)

    def write(self, records: list[Record]) -> None:
        self.writes.append(records)
        self.came.release()


def test_what_comes_after_a_rest_does_not_wait_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "FLUSH_S", 30.0)
    sink = Writes()
    emitter = Emitter(sink)
    emitter.log(1, {"loss": 1.0})
    emitter.record(Phase(at=1.0, name="training"))
    assert sink.came.acquire(timeout=5)
    assert [type(record).__name__ for record in sink.writes[0]] == ["Points", "Phase"]
    emitter.close()


def test_a_flood_is_written_at_most_once_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "FLUSH_S", 0.2)
    sink = Writes()
    emitter = Emitter(sink)
    began = time.monotonic()
    while len(sink.writes) < 4:
        emitter.log(1, {"loss": 1.0})
        time.sleep(0.001)
    assert time.monotonic() - began >= 3 * 0.19
    emitter.close()


def test_a_process_that_says_nothing_is_not_woken_20_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = threading.Semaphore(0)
    monkeypatch.setattr(emit, "LOOK_EVERY_S", 30.0)
    emitter = Emitter(Writes())
    monkeypatch.setattr(emitter.pulse, "tell_what_lasts", turns.release)
    assert not turns.acquire(timeout=0.3)
    emitter.log(1, {"loss": 1.0})
    assert turns.acquire(timeout=5)
    emitter.close()
