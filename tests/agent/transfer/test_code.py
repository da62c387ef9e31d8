"""The user's program on the node: only plain files inside the folder, of bounded size, or a clear refusal."""

import hashlib
import os
import stat
import zipfile
from pathlib import Path

import httpx
import pytest

from worker_agent.daemon.control_plane import ControlPlane, NotFetched, Rejected, Unreachable
from worker_agent.daemon.transfer.program_store import ProgramStore, unpack
from worker_agent.protocol.job import archive as protocol_archive
from worker_agent.protocol.job.archive import ArchiveRefused
from worker_agent.protocol.job.job_spec import CodeRef

DIGEST = "a" * 64


class FakeControlPlane:
    """Gives `content`, after failing as often as it is told to."""

    def __init__(self, content: bytes = b"x = 1\n", *, failures: int = 0, rejection: str = "") -> None:
        self.content, self.failures, self.rejection = content, failures, rejection
        self.calls = 0

    def download_code(self, sha256: str, target: Path) -> None:
        self.calls += 1
        if self.rejection:
            raise Rejected(404, self.rejection)
        if self.calls <= self.failures:
            raise Unreachable("connection refused")
        target.write_bytes(self.content)


def install(tmp_path: Path, plane: FakeControlPlane, reference: CodeRef, *, gives_up: bool = False) -> Path:
    folder = tmp_path / "code-here"
    ProgramStore(tmp_path / "data", plane).install(reference, folder, wait=lambda _: gives_up)
    return folder


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return path


def zipped_as(path: Path, name: str, *, mode: int = 0) -> Path:
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"target")
    return path


def test_programs_that_nobody_used_for_long_are_dropped(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "data", FakeControlPlane())
    digests = [letter * 64 for letter in "abc"]
    for digest in digests[:2]:
        store.install(CodeRef(sha256=digest, entry="recipe.py"), tmp_path / "here", wait=lambda _: False)
        os.utime(tmp_path / "data" / "code" / digest, (0, 0))
    for digest in digests[1:]:
        store.install(CodeRef(sha256=digest, entry="recipe.py"), tmp_path / "here", wait=lambda _: False)
    assert sorted(path.name for path in (tmp_path / "data" / "code").iterdir()) == digests[1:]


def test_a_single_file_is_fetched_once_and_installed_afresh(tmp_path: Path) -> None:
    plane = FakeControlPlane()
    reference = CodeRef(sha256=DIGEST, entry="recipe.py")
    store = ProgramStore(tmp_path / "data", plane)
    for name in ("one", "two"):
        store.install(reference, tmp_path / name, wait=lambda _: False)
        assert (tmp_path / name / "recipe.py").read_bytes() == b"x = 1\n"
    (tmp_path / "one" / "old").touch()
    store.install(reference, tmp_path / "one", wait=lambda _: False)
    assert not (tmp_path / "one" / "old").exists()
    assert plane.calls == 1


def test_an_archive_is_unpacked_with_its_folders(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", main=b"1", package__mod=b"2" * 100_000)
    folder = install(
        tmp_path, FakeControlPlane(archive.read_bytes()), CodeRef(sha256=DIGEST, entry="main", archive=True)
    )
    assert (folder / "package" / "mod").read_bytes() == b"2" * 100_000


def test_a_short_absence_of_the_control_plane_is_waited_out(tmp_path: Path) -> None:
    plane = FakeControlPlane(failures=3)
    assert install(tmp_path, plane, CodeRef(sha256=DIGEST, entry="r.py")).joinpath("r.py").exists()
    assert plane.calls == 4


@pytest.mark.parametrize(
    ("plane", "reference", "gives_up", "words"),
    [
        (FakeControlPlane(failures=10**6), CodeRef(sha256=DIGEST, entry="r.py"), False, "could not be fetched"),
        (FakeControlPlane(failures=10**6), CodeRef(sha256=DIGEST, entry="r.py"), True, "could not be fetched"),
        (
            FakeControlPlane(rejection="Gone."),
            CodeRef(sha256=DIGEST, entry="r.py"),
            False,
            "did not give the code: Gone.",
        ),
        (FakeControlPlane(), CodeRef(sha256="../../etc", entry="r.py"), False, "not a SHA-256"),
        (FakeControlPlane(), CodeRef(sha256=DIGEST, entry="../r.py"), False, "inside the program's folder"),
        (FakeControlPlane(b"junk"), CodeRef(sha256=DIGEST, entry="r.py", archive=True), False, "cannot be unpacked"),
    ],
)
def test_what_cannot_be_installed_is_refused_in_words(
    tmp_path: Path, plane: FakeControlPlane, reference: CodeRef, gives_up: bool, words: str
) -> None:
    with pytest.raises((NotFetched, ArchiveRefused), match=words):
        install(tmp_path, plane, reference, gives_up=gives_up)


def test_an_archive_without_the_entry_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", other=b"1")
    with pytest.raises(ArchiveRefused, match=r"no file 'main\.py'"):
        install(tmp_path, FakeControlPlane(archive.read_bytes()), CodeRef(sha256=DIGEST, entry="main.py", archive=True))


@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/etc/out", "..\\out", "C:\\out", "C:out", ".", "x" * 201, "ä" * 101, "a/" * 3 + ".."],
)
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ArchiveRefused, match=r"inside the program's folder|longer than"):
        unpack(zipped_as(tmp_path / "a.zip", name), inside)
    assert list(inside.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"inside", "a.zip"}


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(ArchiveRefused, match="a link or a special file"):
        unpack(zipped_as(tmp_path / "a.zip", "link", mode=kind | 0o777), tmp_path / "inside")


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ArchiveRefused, match="looks like a zip bomb"):
        unpack(zipped(tmp_path / "a.zip", bomb=b"\0" * 20_000_000), inside)
    assert list(inside.iterdir()) == []


def test_a_bomb_that_lies_about_its_size_is_cut_off(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", bomb=b"\0" * 20_000_000)
    data = bytearray(archive.read_bytes())
    for header, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        position = data.index(header) + offset
        data[position : position + 4] = (100).to_bytes(4, "little")
    archive.write_bytes(data)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ArchiveRefused, match=r"cannot be unpacked|larger than"):
        unpack(archive, inside)
    assert sum(path.stat().st_size for path in inside.iterdir()) <= 100


def test_too_many_files_too_much_and_the_same_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(tmp_path / "a.zip", a=b"1" * 10, b=b"2" * 10)
    inside = tmp_path / "inside"
    inside.mkdir()
    with monkeypatch.context() as small:
        small.setattr(protocol_archive, "MEMBERS_MAX", 1)
        with pytest.raises(ArchiveRefused, match="holds 2 files"):
            unpack(archive, inside)
    with monkeypatch.context() as small:
        small.setattr(protocol_archive, "PROGRAM_BYTES_MAX", 19)
        with pytest.raises(ArchiveRefused, match="larger than 0 MB unpacked"):
            unpack(archive, inside)
    with zipfile.ZipFile(archive, "a") as content, pytest.warns(UserWarning, match="Duplicate"):
        content.writestr("a", b"again")
    with pytest.raises(ArchiveRefused, match="'a' is in the archive twice"):
        unpack(archive, inside)


def test_a_program_has_its_name_only_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is named before it is written through is empty after a power cut, and nobody would fetch it again."""
    content, name, sync = b"x = 1\n", hashlib.sha256(b"x = 1\n").hexdigest(), os.fsync
    on_disk: dict[Path, bytes | list[str]] = {}

    def synced(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        on_disk[path] = sorted(each.name for each in path.iterdir()) if path.is_dir() else path.read_bytes()
        sync(file)

    monkeypatch.setattr(os, "fsync", synced)
    plane = ControlPlane("http://control", node_id="node", key=b"key")
    plane._client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=content)))
    plane.download_code(name, tmp_path / name)
    assert list(on_disk.values()) == [content, [name]]
