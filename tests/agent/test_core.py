"""The agent's decisions: one event in, instructions out; twice, late and out of order."""

import pytest

from tests.agent.plans import make_launch, make_spec
from worker_agent.daemon.core import (
    FORGOTTEN_LIMIT,
    SHUTDOWN_GRACE_S,
    SHUTDOWN_REASON,
    SHUTDOWN_SAVING_S,
    ArtifactsUploaded,
    Core,
    LaunchNotRecorded,
    RecordLaunch,
    RemoveReplica,
    ReplicaEnded,
    ReplicaKey,
    ReplicaRestored,
    ReplicaStarted,
    SendAck,
    ShipStreams,
    ShutdownRequested,
    StartReplica,
    UploadArtifacts,
    WriteExit,
)
from worker_agent.protocol.commands import Expect, Forget, Probe, Stop, WithdrawProbe
from worker_agent.protocol.states import Cause, Keras, Kind, ReplicaStatus

KEY = ReplicaKey(7, 1)
LAUNCH = make_launch(command_id=1)
STOP = Stop(command_id=2, replica_id=7, attempt=1, grace_s=5.0, reason="Stopped by ada.")
FORGET = Forget(command_id=3, replica_id=7, attempt=1)


def shutdown_stop(*, grace_s: float, save: bool) -> Stop:
    return Stop(
        command_id=0,
        replica_id=KEY.replica_id,
        attempt=KEY.attempt,
        grace_s=grace_s,
        reason=SHUTDOWN_REASON,
        cause=Cause.AGENT_SHUTDOWN,
        save=save,
    )


def core_after(*events: object) -> Core:
    core = Core()
    for event in events:
        core.handle(event)
    return core


def test_a_launch_is_journalled_before_it_is_acknowledged_and_started() -> None:
    assert Core().handle(LAUNCH) == [RecordLaunch(LAUNCH), SendAck(1), ShipStreams(KEY), StartReplica(LAUNCH)]


@pytest.mark.parametrize(
    "events",
    [
        (LAUNCH,),
        (LAUNCH, ReplicaStarted(KEY, 42)),
        (LAUNCH, ReplicaStarted(KEY, 42), ReplicaEnded(KEY)),
        (LAUNCH, ReplicaEnded(KEY), ArtifactsUploaded(KEY), FORGET),
        (STOP,),
        (ReplicaRestored(KEY, LAUNCH, has_ended=False, is_uploaded=False),),
    ],
)
def test_a_launch_that_comes_again_is_acknowledged_again_and_nothing_else(events: tuple[object, ...]) -> None:
    assert core_after(*events).handle(LAUNCH) == [SendAck(1)]


def test_another_attempt_is_another_replica() -> None:
    second = make_launch(command_id=9, attempt=2)
    assert StartReplica(second) in core_after(LAUNCH).handle(second)


def test_a_launch_that_cannot_be_journalled_is_not_acknowledged_and_comes_again() -> None:
    core = core_after(LAUNCH)
    assert core.handle(LaunchNotRecorded(LAUNCH)) == []
    assert StartReplica(LAUNCH) in core.handle(LAUNCH)


@pytest.mark.parametrize("events", [(LAUNCH,), (LAUNCH, ReplicaStarted(KEY, 42))])
def test_a_stop_reaches_what_has_not_ended(events: tuple[object, ...]) -> None:
    assert core_after(*events).handle(STOP) == [STOP, SendAck(2)]


def test_a_stop_after_the_end_is_only_acknowledged() -> None:
    assert core_after(LAUNCH, ReplicaEnded(KEY)).handle(STOP) == [SendAck(2)]
    assert core_after(LAUNCH, ReplicaEnded(KEY), ArtifactsUploaded(KEY), FORGET).handle(STOP) == [SendAck(2)]


def test_a_stop_that_overtakes_its_launch_becomes_an_exit() -> None:
    message = "Stopped by ada. It had not started yet."
    core = Core()
    assert core.handle(STOP) == [WriteExit(KEY, Cause.STOPPED, message), ShipStreams(KEY), SendAck(2)]
    assert core.handle(STOP) == [SendAck(2)]
    assert core.handle(FORGET) == [RemoveReplica(KEY), SendAck(3)]


def test_the_end_uploads_once_and_is_told() -> None:
    core = core_after(LAUNCH, ReplicaStarted(KEY, 42))
    assert (core.held[KEY].status, core.held[KEY].pid) == (ReplicaStatus.RUNNING, 42)
    assert core.handle(ReplicaEnded(KEY)) == [UploadArtifacts(KEY, LAUNCH)]
    assert core.handle(ReplicaEnded(KEY)) == []
    assert core.handle(ReplicaStarted(KEY, 42)) == []
    assert (core.held[KEY].status, core.held[KEY].pid) == (ReplicaStatus.EXITED, 0)


def test_forgetting_waits_for_the_end_and_for_the_uploads() -> None:
    core = core_after(LAUNCH)
    assert core.held[KEY].status is ReplicaStatus.STARTING
    assert core.handle(FORGET) == []
    core.handle(ReplicaEnded(KEY))
    assert core.handle(FORGET) == []
    assert core.handle(ArtifactsUploaded(KEY)) == []
    assert core.handle(FORGET) == [RemoveReplica(KEY), SendAck(3)]
    assert core.handle(FORGET) == [SendAck(3)]
    assert core.handle(ArtifactsUploaded(KEY)) == []


def test_an_agent_that_was_restarted_during_an_upload_forgets_in_the_end() -> None:
    core = core_after(LAUNCH, ReplicaEnded(KEY))
    assert core.handle(FORGET) == []
    next_one = Core()
    assert next_one.handle(ReplicaRestored(KEY, LAUNCH, has_ended=True, is_uploaded=False)) == [
        ShipStreams(KEY),
        UploadArtifacts(KEY, LAUNCH),
    ]
    assert next_one.handle(FORGET) == []
    assert next_one.handle(ArtifactsUploaded(KEY)) == []
    assert next_one.handle(FORGET) == [RemoveReplica(KEY), SendAck(3)]


def test_what_an_earlier_agent_left() -> None:
    running = Core()
    assert running.handle(ReplicaRestored(KEY, LAUNCH, has_ended=False, is_uploaded=False)) == [
        ShipStreams(KEY),
        StartReplica(LAUNCH, restored=True),
    ]
    ended = Core()
    assert ended.handle(ReplicaRestored(KEY, LAUNCH, has_ended=True, is_uploaded=False)) == [
        ShipStreams(KEY),
        UploadArtifacts(KEY, LAUNCH),
    ]
    delivered = Core()
    assert delivered.handle(ReplicaRestored(KEY, LAUNCH, has_ended=True, is_uploaded=True)) == [ShipStreams(KEY)]
    assert delivered.handle(FORGET) == [RemoveReplica(KEY), SendAck(3)]
    stopped = Core()
    assert stopped.handle(ReplicaRestored(KEY, None, has_ended=True, is_uploaded=False)) == [ShipStreams(KEY)]
    assert stopped.handle(FORGET) == [RemoveReplica(KEY), SendAck(3)]


def test_leaving_with_or_without_the_replicas() -> None:
    core = core_after(LAUNCH, make_launch(replica_id=8), ReplicaEnded(ReplicaKey(8, 1)))
    assert core.handle(ShutdownRequested(end_replicas=False)) == []
    assert core.handle(ShutdownRequested(end_replicas=True)) == [shutdown_stop(grace_s=SHUTDOWN_SAVING_S, save=True)]
    script = core_after(make_launch(spec=make_spec(kind=Kind.SCRIPT)))
    assert script.handle(ShutdownRequested(end_replicas=True)) == [shutdown_stop(grace_s=SHUTDOWN_GRACE_S, save=False)]
    late = make_launch(command_id=11, replica_id=9)
    assert core.handle(late) == [], "it is sent again"
    enough = Stop(command_id=12, replica_id=KEY.replica_id, attempt=KEY.attempt, reason="It has saved.")
    assert [type(each) for each in core.handle(enough)] == [Stop, SendAck]


def test_what_was_forgotten_is_remembered_within_limits() -> None:
    core = Core()
    for number in range(FORGOTTEN_LIMIT + 1):
        core.handle(Stop(command_id=1, replica_id=number, attempt=1))
        core.handle(Forget(command_id=2, replica_id=number, attempt=1))
    assert core.held == {}
    assert core.handle(make_launch(command_id=5, replica_id=1)) == [SendAck(5)]
    assert len(core.handle(make_launch(command_id=5, replica_id=0))) == 4


def test_a_job_that_may_come_is_neither_acknowledged_nor_held_and_of_no_interest_to_who_leaves() -> None:
    core = Core()
    expected = Expect(keras=Keras.KERAS3)
    assert core.handle(expected) == [expected]
    assert not core.held
    core.handle(ShutdownRequested(end_replicas=False))
    assert core.handle(expected) == []


def test_a_probe_is_taken_and_changes_nothing_that_is_held() -> None:
    core = core_after(LAUNCH)
    probe = Probe(
        command_id=9,
        preflight_id=1,
        key="k",
        node="a",
        own=[],
        others=[],
        devices=[],
        device_kind=LAUNCH.device_kind,
        spec=LAUNCH.spec,
    )
    held = dict(core.held)
    assert core.handle(probe) == [SendAck(9), probe]
    withdrawal = WithdrawProbe(command_id=10, preflight_id=1)
    assert core.handle(withdrawal) == [SendAck(10), withdrawal]
    assert core.held == held
