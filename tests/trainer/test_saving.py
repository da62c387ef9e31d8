"""`trainyard.save`: copies into the folder that the job gives, with the program's own rights; a line elsewhere."""

import os
from pathlib import Path

import pytest

import trainyard


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "kept").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAINYARD_FILES", str(tmp_path / "kept"))
    return tmp_path / "kept"


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_file_and_a_folder_keep_their_paths(kept: Path) -> None:
    Path("out/deep").mkdir(parents=True)
    Path("out/deep/model.bin").write_text("weights")
    Path("out/.cache").mkdir()
    Path("out/.cache/x").touch()
    os.mkfifo("out/pipe")
    Path("out/link").symlink_to("deep/model.bin")
    trainyard.save("out/deep/model.bin")
    assert files(kept) == {"out/deep/model.bin": "weights"}
    Path("out/deep/model.bin").write_text("better")
    trainyard.save(Path("out"))
    assert files(kept) == {"out/deep/model.bin": "better", "out/link": "better"}
    assert not (kept / "out/link").is_symlink()


def test_what_lies_elsewhere_has_its_last_name(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.hidden.txt").write_text("1")
    trainyard.save(tmp_path / "elsewhere/.hidden.txt")
    trainyard.save("../work/../elsewhere/.hidden.txt")
    assert files(kept) == {"hidden.txt": "1"}


def test_what_is_not_there_raises(kept: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file or folder missing\.h5"):
        trainyard.save("missing.h5")


def test_outside_of_a_job_it_says_so(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRAINYARD_FILES")
    Path("model.h5").touch()
    trainyard.save("model.h5")
    assert capsys.readouterr().out == "trainyard: model.h5 stays where it is, because this program runs outside a job\n"
    assert files(kept) == {}
