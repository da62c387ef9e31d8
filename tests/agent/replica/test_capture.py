"""Output on its way into the spool: whole lines, small pieces, no NUL, floods counted."""

from worker_agent.protocol.records import Gap, Log
from worker_agent.replica.output.capture import (
    BURST_BYTES,
    PARTIAL_LINE_S,
    PIECE_CHARS,
    RATE_BYTES_S,
    REDRAWN_LINE_S,
    Capture,
)


def texts(records: list[Log | Gap]) -> list[str]:
    return [record.text for record in records if isinstance(record, Log)]


def test_whole_lines_leave_and_the_rest_waits_for_its_end() -> None:
    capture = Capture(now=0)
    capture.feed(b"one\ntwo\nthr", now=0)
    assert texts(capture.drain(now=0, at=1)) == ["one\ntwo\n"]
    assert capture.is_waiting
    capture.feed(b"ee\n", now=0.01)
    assert texts(capture.drain(now=0.01, at=1)) == ["three\n"]
    assert not capture.is_waiting


def test_a_progress_bar_without_a_line_end_leaves_after_a_while() -> None:
    capture = Capture(now=0)
    capture.feed(b"12%", now=0)
    assert capture.drain(now=0, at=1) == []
    assert capture.drain(now=PARTIAL_LINE_S / 2, at=1) == []
    assert texts(capture.drain(now=PARTIAL_LINE_S, at=1)) == ["12%"]


def test_a_line_that_draws_over_itself_leaves_once_in_its_last_state() -> None:
    capture = Capture(now=0)
    for done in range(1, 100):
        capture.feed(f"\r\x1b[1m{done:3}/99\x1b[0m".encode(), now=done / 10)
        assert capture.drain(now=done / 10, at=1) == []
    capture.feed(b"\n", now=10)
    assert texts(capture.drain(now=10, at=1)) == [" 99/99\n"]


def test_a_line_that_is_redrawn_for_long_shows_a_state_now_and_then() -> None:
    capture = Capture(now=0)
    capture.feed(b"\r 1 %", now=0)
    assert capture.drain(now=REDRAWN_LINE_S - 1, at=1) == []  # the clock begins when it is first seen
    assert texts(capture.drain(now=2 * REDRAWN_LINE_S, at=1)) == [" 1 %\n"]
    capture.feed(b"\r 2 %", now=2 * REDRAWN_LINE_S)
    assert texts(capture.drain(now=2 * REDRAWN_LINE_S, at=1, final=True)) == [" 2 %"]


def test_a_beginning_that_left_is_not_joined_with_what_replaces_it() -> None:
    capture = Capture(now=0)
    capture.feed(b"12%", now=0)
    capture.drain(now=0, at=1)
    assert texts(capture.drain(now=PARTIAL_LINE_S, at=1)) == ["12%"]
    capture.feed(b"\r13%\n", now=1)
    assert texts(capture.drain(now=1, at=1)) == ["\n13%\n"]


def test_an_endless_redrawn_line_is_bounded() -> None:
    capture = Capture(now=0)
    for number in range(50_000):
        capture.feed(f"\rstep {number:6}".encode(), now=0)
        if number % 1000 == 0:
            assert capture.drain(now=0, at=1) == []
    assert capture.drain(now=0, at=1) == []
    assert len(capture._text) < PIECE_CHARS
    assert texts(capture.drain(now=0, at=1, final=True)) == ["step  49999"]


def test_the_rest_leaves_at_the_end() -> None:
    capture = Capture(now=0)
    capture.feed(b"no newline \xc3", now=0)
    assert texts(capture.drain(now=0, at=1, final=True)) == ["no newline �"]


def test_a_long_line_is_cut_into_pieces_and_kept_whole() -> None:
    capture = Capture(now=0)
    line = "é" * 5_000_000 + "\n"
    capture.feed(line.encode(), now=0)
    pieces = texts(capture.drain(now=0, at=1))
    assert max(map(len, pieces)) == PIECE_CHARS
    assert "".join(pieces) == line


def test_characters_cut_between_reads_nul_and_bad_bytes() -> None:
    capture = Capture(now=0)
    data = "naïve\0\n".encode()
    for byte in (*[data[i : i + 1] for i in range(len(data))], b"\xff\n"):
        capture.feed(byte, now=0)
    assert "".join(texts(capture.drain(now=0, at=1))) == "naïve\n�\n"


def test_a_flood_is_cut_counted_and_forgiven() -> None:
    capture = Capture(now=0)
    chunk = b"x" * 999_999 + b"\n"
    for _ in range(25):
        capture.feed(chunk, now=0)
    records = capture.drain(now=0, at=1)
    gap = records[-1]
    assert isinstance(gap, Gap)
    assert sum(map(len, texts(records))) + gap.size_bytes == 25_000_000
    assert sum(map(len, texts(records))) == BURST_BYTES
    capture.feed(chunk, now=len(chunk) / RATE_BYTES_S)
    assert [type(record) for record in capture.drain(now=1, at=1)] == [Log] * 16


def test_the_last_lines_are_remembered() -> None:
    capture = Capture(now=0)
    capture.feed(b"".join(b"line %d\n\n" % n for n in range(100)), now=0)
    capture.drain(now=0, at=1)
    assert capture.last_lines(2) == ["line 98", "line 99"]
