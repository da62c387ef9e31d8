"""Points out of what a process prints: at a bounded rate, each name kept, the last always."""

from time import process_time

from tests.domain.gang.gangs import spec
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.records import Points, Progress, Summary
from worker_agent.protocol.states import Kind
from worker_agent.replica.output.printed import BURST_POINTS, Printed


def printed(index: int = 0, names: str = "loss, acc") -> Printed:
    asked = spec(kind=Kind.SCRIPT, workers=2, printed=names)
    return Printed(Launch(command_id=1, replica_id=1, job_id=1, attempt=1, spec=asked, index=index), now=0.0)


def test_lines_become_points_and_the_leader_tells_the_jobs_metrics() -> None:
    text = "step 1 loss: 0.5\nstep 2 loss: 0.25\nacc: 1\n"
    said = printed().records(text, now=2.0, at=100.0)
    assert said == [
        Points(names=["loss"], steps=[1, 2], times=[100.0, 100.0], values=[[0.5, 0.25]]),
        Points(names=["acc"], steps=[2], times=[100.0], values=[[1.0]]),
        Progress(at=100.0, step=2, total_steps=0, epoch=0, epochs=0),
        Summary(at=100.0, epoch=0, metrics={"loss": 0.25, "acc": 1.0}),
    ]
    assert not any(isinstance(each, Summary) for each in printed(index=1).records(text, now=2.0, at=100.0))
    assert printed(names="").records(text, now=2.0, at=100.0, final=True) == []


def test_a_flood_is_thinned_and_ends_with_its_last_points() -> None:
    numbers, kept, last, began = printed(), 0, {}, process_time()
    for tick in range(100):
        lines = "".join(
            f"step {step} loss: {step}\nstep {step} acc: {step}\n" for step in range(tick * 500, tick * 500 + 500)
        )
        for each in numbers.records(lines, now=tick / 20, at=0.0, final=tick == 99):
            if isinstance(each, Points):
                kept += len(each.steps)
                last[each.names[0]] = each.steps[-1]
    assert process_time() - began < 5
    assert kept <= BURST_POINTS + 2 * 100 + 100
    assert last == {"loss": 49_999, "acc": 49_999}


def test_what_the_process_says_last_is_told_at_once() -> None:
    numbers = printed()
    assert numbers.records("loss: 1\nlos", now=0.1, at=0.0) == [
        Points(names=["loss"], steps=[1], times=[0.0], values=[[1.0]])
    ]
    said = numbers.records("s: 2", now=0.2, at=0.0, final=True)
    assert [type(each) for each in said] == [Points, Progress, Summary]
    assert said[-1].metrics == {"loss": 2.0}  # type: ignore[union-attr]
