"""Which checkpoints may not be dropped, because the control plane may name them."""

from worker_agent.trainer.saving.acknowledged import UNSURE_S, Heard


def told(heard: Heard, *steps: int, every_s: float = 1.0) -> None:
    """Saves after these steps, of each of which the last two are kept; a step takes ten bytes of the stream."""
    for step in steps:
        heard.tell({str(step - 1), str(step)}, position=10 * step, at=step * every_s)


def test_what_is_acknowledged_lets_those_before_go() -> None:
    heard = Heard()
    told(heard, 1, 2, 3)
    assert heard.names(acknowledged=0) == {"0", "1", "2", "3"}
    assert heard.names(acknowledged=29) == {"1", "2", "3"}
    assert heard.names(acknowledged=30) == {"2", "3"}
    assert heard.position == 30


def test_the_one_it_began_with_stays_until_another_is_known() -> None:
    heard = Heard("restored")
    told(heard, 5)
    assert heard.names(acknowledged=49) == {"restored", "4", "5"}
    assert heard.names(acknowledged=50) == {"4", "5"}


def test_cut_off_it_keeps_what_may_have_arrived_and_the_latest() -> None:
    heard = Heard()
    told(heard, 1, 2, 3, 4)
    assert heard.names(acknowledged=40) == {"3", "4"}
    told(heard, *range(5, 1000))
    arrived = {str(step) for step in range(3, 6 + int(UNSURE_S))}
    assert heard.names(acknowledged=40) == arrived | {"998", "999"}
    told(heard, 1000)
    assert heard.names(acknowledged=40) == arrived | {"999", "1000"}
    assert heard.names(acknowledged=9_999) >= {"999", "1000"}
    assert heard.names(acknowledged=10_000) == {"999", "1000"}
