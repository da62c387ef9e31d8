"""Numbers in printed lines: which are found, at which step, and that no output takes long to read."""

from time import process_time

import pytest

from worker_agent.protocol.job.printed import PrintedNumbers, candidates, names_in, problem_of


@pytest.mark.parametrize(
    ("line", "point"),
    [
        ("loss: 0.25", (1, {"loss": 0.25})),
        ("Loss=0.25, Accuracy = 97.5%", (1, {"loss": 0.25, "accuracy": 97.5})),
        ("step 20 loss 1e-3", (20, {"loss": 0.001})),
        ("[step=20] loss is -.5", (20, {"loss": -0.5})),
        ("Epoch 3/10 - loss: 0.2500 - accuracy: 0.9", (3, {"loss": 0.25, "accuracy": 0.9})),
        ("Epoch 3/10, step 40: loss 3", (40, {"loss": 3.0})),
        ("test accuracy: 0.5", (1, {"test accuracy": 0.5})),
        ("iter #7 {'loss': 0.5}", (7, {"loss": 0.5})),
        ("val_loss: 0.5", None),
        ("the loss of 3 runs", None),
        ("loss: 1.2.3", None),
        ("loss: 3x", None),
        ("loss: ", None),
        ("", None),
    ],
)
def test_a_line(line: str, point: object) -> None:
    assert PrintedNumbers(["loss", "accuracy", "test accuracy"]).read(line.replace("'", "")) == point


def steps(text: str) -> list[int]:
    return [step for step, _ in PrintedNumbers(["loss"]).feed(text, final=True)]


def test_the_steps_of_lines() -> None:
    assert steps("loss: 1\nloss: 2\nother\nloss: 3") == [1, 2, 3]
    assert steps("Epoch 1/3\nloss: 1\nEpoch 2/3\nloss: 2") == [1, 2]
    assert steps("epoch 1 step 10 loss: 1\nepoch 1 step 20 loss: 1\nepoch 2 step 10 loss: 1") == [10, 20, 30]
    assert steps("step 10 loss: 1\nstep 20 loss: 1\nepoch 1 done: loss: 1\nstep 30 loss: 1") == [10, 20, 20, 30]
    assert steps("epochs: 100, steps: 500\nloss: 1\nloss: 2") == [1, 2]


def test_pieces_of_lines_are_put_together() -> None:
    numbers = PrintedNumbers(["loss"])
    assert numbers.feed("step 1 lo") == []
    assert numbers.feed("ss: 0.5\nstep 2 loss: 0.") == [(1, {"loss": 0.5})]
    assert numbers.feed("25", final=True) == [(2, {"loss": 0.25})]


def test_names() -> None:
    assert names_in(" loss, val loss,\nloss ,") == ["loss", "val loss"]
    assert problem_of("loss, accuracy (top 5), F1/macro") == ""
    assert "'(a+)+' is not a name" in problem_of("loss, (a+)+")
    assert problem_of(",".join(f"n{number}" for number in range(21))) == "at most 20 names; there are 21"
    assert PrintedNumbers([]).feed("loss: 1\n") == []
    assert PrintedNumbers(["a (b"]).read("a (b: 1") == (1, {"a (b": 1.0})


@pytest.mark.parametrize("filler", ["loss ", "loss:", "1", " ", "loss:1e", "loss: 1", "a", "step ", "=\t"])
def test_hostile_output_is_read_in_time(filler: str) -> None:
    """Two megabytes are what a process may print in a second."""
    text = (filler * 1_000_000)[:1_000_000]
    names = [f"loss{' ' * number}x" for number in range(19)] + ["loss"]
    began = process_time()
    PrintedNumbers(names).feed(text + "\n" + "\n".join(text[at : at + 2_000] for at in range(0, 1_000_000, 2_000)))
    candidates(text)
    candidates("\n".join(text[at : at + 2_000] for at in range(0, 1_000_000, 2_000)))
    assert process_time() - began < 5


def test_what_a_log_offers() -> None:
    log = "\n".join(
        f"I0000 00:00:17 port.cc:153] x\nstep: {step} Loss: {1 / step:.2f} acc={step} CPU:0" for step in range(1, 4)
    )
    found = [(each.name, each.lines, each.first, each.last) for each in candidates(log)]
    assert found == [("Loss", 3, 1.0, 0.33), ("acc", 3, 1.0, 3.0), ("CPU", 3, 0.0, 0.0)]
    assert candidates("loss: 1") == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("step 100 loss 0.5", ["loss"]),
        ("Epoch 3 | loss 0.5 | acc is 9.1e-1", ["loss", "acc"]),
        ("iteration 4 loss nan", ["loss"]),
        ("loss 0.5", []),
        ("step 4 of 5 took 3.2 s, rows 17", []),
        ("epoch 2 ends in 3.5 minutes", []),
    ],
)
def test_numbers_without_a_sign_are_offered_from_lines_that_say_their_step(line: str, names: list[str]) -> None:
    assert [each.name for each in candidates(f"{line}\n{line}\n")] == names
