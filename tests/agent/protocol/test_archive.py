"""One rule for archives: whatever passes it can be unpacked, whatever it refuses never reaches the disk."""

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker_agent.daemon.transfer.program_store import unpack
from worker_agent.protocol.job.archive import (
    MEMBERS_MAX,
    NAME_BYTES_MAX,
    RATIO_FREE_BYTES,
    ArchiveRefused,
    chunks,
    opened,
)

PARTS = st.sampled_from(["a", "A", "b", "..", ".", "ä" * 60, "x" * 120, "c:", "d\\e", "f\0g", "\n", ""])
NAMES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


def packed(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def read_through(content: bytes) -> dict[str, bytes]:
    with opened(io.BytesIO(content)) as archive:
        return {member.filename: b"".join(chunks(archive, member)) for member in archive.infolist()}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=200, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_what_is_taken_at_the_upload_can_be_unpacked_on_every_node(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = packed(*((name, b"" if name.endswith("/") else name.encode()) for name in names))
    try:
        taken = read_through(content)
    except ArchiveRefused:
        return
    folder = tmp_path_factory.mktemp("node")
    archive = folder / "a.zip"
    archive.write_bytes(content)
    inside = folder / "inside"
    inside.mkdir()
    unpack(archive, inside)
    written = {path for path in inside.rglob("*") if path.is_file()}
    assert written == {inside / name for name in taken if not name.endswith("/")}
    assert set(folder.iterdir()) == {archive, inside}


def test_what_lies_just_within_the_bounds_is_taken() -> None:
    fits = packed(*((f"{number}.txt", b"") for number in range(MEMBERS_MAX)))
    assert len(read_through(fits)) == MEMBERS_MAX
    with pytest.raises(ArchiveRefused, match=f"at most {MEMBERS_MAX} are allowed"):
        read_through(packed(*((f"{number}.txt", b"") for number in range(MEMBERS_MAX + 1))))
    assert len(read_through(packed(("x" * NAME_BYTES_MAX, b""), ("zeros", bytes(RATIO_FREE_BYTES))))) == 2
    with pytest.raises(ArchiveRefused, match="zip bomb"):
        read_through(packed(("zeros", bytes(RATIO_FREE_BYTES + 1))))


def test_a_member_shorter_than_it_says_is_refused() -> None:
    content = bytearray(packed(("a", b"1234")))
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (9).to_bytes(4, "little")
    with pytest.raises(ArchiveRefused, match="smaller than the archive says"):
        read_through(bytes(content))


def test_a_file_is_read_like_a_stream(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(packed(("pkg/a.py", b"x = 1")))
    with opened(tmp_path / "a.zip") as archive:
        assert [member.filename for member in archive.infolist()] == ["pkg/a.py"]
    with pytest.raises(ArchiveRefused, match="cannot be unpacked"), opened(tmp_path / "none.zip"):
        pass
