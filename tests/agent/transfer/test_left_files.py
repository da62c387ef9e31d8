"""What a hostile program leaves in its folder: only plain files of its own are found to be taken, and only as found."""

import hashlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from worker_agent.daemon.transfer import left_files
from worker_agent.daemon.transfer.left_files import Changed, Found, digest_of, files_below, opened, pieces_of
from worker_agent.protocol.files import NAME_BYTES_MAX, NotKept, is_asked_for, name_problem


def everything(folder: Path, **changes: object) -> dict[str, Found]:
    return {file.name: file for file in files_below(folder, is_wanted=lambda name: True, **changes)}  # type: ignore[arg-type]


def read(file: Found) -> bytes:
    with opened(file) as content:
        return content.read()


def test_files_are_found_with_their_paths_and_hidden_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "export/variables").mkdir(parents=True)
    (tmp_path / "export/saved_model.pb").write_bytes(b"graph")
    (tmp_path / "export/variables/variables.index").write_bytes(b"i")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").touch()
    (tmp_path / ".cache").touch()
    found = everything(tmp_path)
    assert list(found) == ["export/variables/variables.index", "export/saved_model.pb"]
    assert read(found["export/saved_model.pb"]) == b"graph"
    assert everything(tmp_path / "nothing") == {}


def test_links_pipes_sockets_and_files_of_two_names_are_only_told_of(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "code"
    secret.write_bytes(b"key of the node")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/private.txt").touch()
    folder.mkdir()
    (folder / "link.txt").symlink_to(secret)
    (folder / "outside").symlink_to(tmp_path / "outside")
    (folder / "hard.txt").hardlink_to(secret)
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.relpath(folder / "door"))
    (folder / "own.txt").write_bytes(b"mine")
    problems = {name: file.problem for name, file in everything(folder).items()}
    assert problems == {
        "link.txt": NotKept.LINK,
        "outside": NotKept.LINK,
        "hard.txt": NotKept.LINK,
        "pipe.txt": NotKept.SPECIAL,
        "door": NotKept.SPECIAL,
        "own.txt": None,
    }


def test_a_device_is_only_told_of(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    status = list((tmp_path / "x").stat())
    status[stat.ST_MODE] = stat.S_IFCHR | 0o600
    assert left_files._problem("x", os.stat_result(status)) is NotKept.SPECIAL


@pytest.mark.parametrize("swapped", ["file", "folder", "pipe", "hard link"])
def test_what_takes_the_place_of_a_found_file_is_not_opened(tmp_path: Path, swapped: str) -> None:
    (tmp_path / "secret/plots").mkdir(parents=True)
    secret = tmp_path / "secret/plots/loss.png"
    secret.write_bytes(b"secret!")
    plots = tmp_path / "code/plots"
    plots.mkdir(parents=True)
    (plots / "loss.png").write_bytes(b"picture")
    (file,) = everything(tmp_path / "code").values()
    if swapped == "folder":
        plots.rename(tmp_path / "moved")
        plots.symlink_to(tmp_path / "secret/plots")
    else:
        (plots / "loss.png").unlink()
    if swapped == "file":
        (plots / "loss.png").symlink_to(secret)
    elif swapped == "pipe":
        os.mkfifo(plots / "loss.png")
    elif swapped == "hard link":
        (plots / "loss.png").hardlink_to(secret)
    with pytest.raises((Changed, OSError)):
        read(file)


def test_a_file_that_vanishes_shrinks_or_is_written_again_while_it_is_read_is_not_sent_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(b"a" * 3_000_000)
    (file,) = everything(tmp_path).values()
    with opened(file) as content:
        sha256 = digest_of(content, file.size_bytes)
        assert sha256 == hashlib.sha256(b"a" * 3_000_000).hexdigest()
        pieces = pieces_of(content, size_bytes=file.size_bytes, sha256=sha256)
        next(pieces)
        with path.open("r+b") as again:
            again.seek(2_900_000)
            again.write(b"b")
        with pytest.raises(Changed):
            list(pieces)
        os.truncate(path, 10)
        with pytest.raises(Changed):
            digest_of(content, file.size_bytes)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read(file)


def test_what_is_appended_while_it_is_read_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"1,2\n")
    (file,) = everything(tmp_path).values()
    with opened(file) as content:
        with path.open("ab") as more:
            more.write(b"3,4\n")
        sha256 = digest_of(content, file.size_bytes)
        assert b"".join(pieces_of(content, size_bytes=file.size_bytes, sha256=sha256)) == b"1,2\n"


def test_names_that_are_no_text_travel_and_stay_apart(tmp_path: Path) -> None:
    for raw in (b"caf\xe9.png", b"caf\xe8.png", b"two\nlines.png", b"back\\slash.png", b"x" * 250 + b".png"):
        (tmp_path / os.fsdecode(raw)).write_bytes(raw)
    found = everything(tmp_path)
    assert len(found) == 5
    assert all(name_problem(name) == "" and name.endswith(".png") for name in found)
    assert {read(file) for file in found.values()} >= {b"caf\xe9.png", b"two\nlines.png"}


def test_a_path_that_is_too_long_and_a_folder_that_is_too_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 100] * 6)
    deep.mkdir(parents=True)
    (deep / "x.png").touch()
    endless = tmp_path.joinpath(*["e"] * 40)
    endless.mkdir(parents=True)
    (endless / "y.png").touch()
    (file,) = everything(tmp_path).values()
    assert (file.problem, len(file.name) > NAME_BYTES_MAX) == (NotKept.NAME, True)
    assert file.told_name.endswith("/x.png")
    assert name_problem(file.told_name) == ""


def test_a_folder_without_end_is_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_files, "ENTRIES_MAX", 10)
    for number in range(30):
        (tmp_path / f"{number}.png").touch()
    assert len(everything(tmp_path)) == 10


def test_what_lay_there_before_is_not_found_unless_it_was_changed(tmp_path: Path) -> None:
    for name in ("labels.txt", "data.csv"):
        (tmp_path / name).write_text("1")
    mark = tmp_path / ".installed"
    mark.touch()
    since_ns = mark.stat().st_ctime_ns
    with (tmp_path / "data.csv").open("a") as data:
        data.write("2")
    (tmp_path / "new.csv").touch()
    os.utime(tmp_path / "new.csv", (1, 1))
    stands_after = threading.Event()
    stands_after.wait(0.02)
    (tmp_path / "later.csv").touch()
    found = everything(tmp_path, since_ns=since_ns)
    assert "labels.txt" not in found
    assert "later.csv" in found


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        ("model.keras", "*.h5 *.keras", True),
        ("deep/down/model.keras", "*.keras", True),
        ("model.keras.tmp", "*.keras", False),
        ("plots/a/b.svg", "plots/*", True),
        ("out/plots/b.svg", "plots/*", True),
        ("myplots/b.svg", "plots/*", False),
        ("Model.KERAS", "*.keras", False),
        ("anything", "", False),
        ("logs/train/events.out.tfevents.1.host", "*tfevents*", True),
    ],
)
def test_patterns(name: str, patterns: str, fits: bool) -> None:
    assert is_asked_for(name, patterns) is fits


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "a//b", "../x", "a/../b", "a/.b", "a\\b", "a\nb", "x" * 201, "a/" * 300 + "b"]
)
def test_names_that_are_refused(name: str) -> None:
    assert name_problem(name)
