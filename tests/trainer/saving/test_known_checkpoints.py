"""Which checkpoints may not be dropped, because the control plane may name them."""

from worker_agent.trainer.saving.known_checkpoints import UNSURE_S, KnownCheckpoints


def saved(known: KnownCheckpoints, *steps: int, every_s: float = 1.0) -> None:
    """Saves after these steps, of each of which the last two are kept; a step takes ten bytes of the stream."""
    for step in steps:
        known.announce({str(step - 1), str(step)}, position=10 * step, at=step * every_s)


def test_what_is_acknowledged_lets_those_before_go() -> None:
    known = KnownCheckpoints()
    saved(known, 1, 2, 3)
    assert known.names(acknowledged=0) == {"0", "1", "2", "3"}
    assert known.names(acknowledged=29) == {"1", "2", "3"}
    assert known.names(acknowledged=30) == {"2", "3"}
    assert known.position == 30


def test_the_one_it_began_with_stays_until_another_is_known() -> None:
    known = KnownCheckpoints("restored")
    saved(known, 5)
    assert known.names(acknowledged=49) == {"restored", "4", "5"}
    assert known.names(acknowledged=50) == {"4", "5"}


def test_cut_off_it_keeps_what_may_have_arrived_and_the_latest() -> None:
    known = KnownCheckpoints()
    saved(known, 1, 2, 3, 4)
    assert known.names(acknowledged=40) == {"3", "4"}
    saved(known, *range(5, 1000))
    arrived = {str(step) for step in range(3, 6 + int(UNSURE_S))}
    assert known.names(acknowledged=40) == arrived | {"998", "999"}
    saved(known, 1000)
    assert known.names(acknowledged=40) == arrived | {"999", "1000"}
    assert known.names(acknowledged=9_999) >= {"999", "1000"}
    assert known.names(acknowledged=10_000) == {"999", "1000"}
