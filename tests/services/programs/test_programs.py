"""Programs on their way in: what is taken, and every trick that is refused with its sentence."""

import base64
import io
import stat
import zipfile

import msgspec
import pytest

from orchestrator.models import Code
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import FieldError
from orchestrator.services.programs import programs
from orchestrator.services.programs.programs import Program, Rejected
from tests.factories import RECIPE, make_job, make_node, make_replica
from worker_agent.protocol.states import Keras, ReplicaStatus, Strategy


def zip_of(*members, compression=zipfile.ZIP_DEFLATED):
    """`content_base64` of an archive; members are (name or ZipInfo, bytes)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def upload(content, filename="code.zip"):
    return {"code": {"filename": filename, "content_base64": base64.b64encode(content).decode()}}


def refusal(request, by):
    outcome = programs.resolve(request, by=by)
    assert isinstance(outcome, Rejected), outcome
    return " | ".join(error.message for error in outcome.errors)


def test_a_recipe_of_the_catalogue(member):
    program = programs.resolve({"recipe": "digits_mlp"}, by=member)
    assert isinstance(program, Program)
    assert (program.ref.recipe, program.ref.entry, program.ref.archive) == ("digits_mlp", "digits_mlp.py", False)
    assert program.info.params


def test_edited_text(member):
    program = programs.resolve({"code": {"filename": "mine.py", "text": RECIPE.decode()}}, by=member)
    assert (program.ref.entry, program.content, program.info.title) == ("mine.py", RECIPE, "Tiny")


@pytest.mark.parametrize("name", ["recipe.py", "only.py"])
def test_an_archive_with_its_entry(name, member):
    archive = zip_of((name, RECIPE), ("pkg/helper.py", b"x = 1"), ("data/a.txt", b"a"))
    program = programs.resolve(upload(archive), by=member)
    assert (program.ref.archive, program.ref.entry, program.content) == (True, name, archive)


def test_saving_twice_stores_once(member):
    program = programs.resolve({"code": {"filename": "mine.py", "text": RECIPE.decode()}}, by=member)
    assert programs.save(program) == programs.save(program)
    assert Code.objects.count() == 1


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "choose a recipe"),
        ({"recipe": "a", "code": {"text": "x"}}, "not both"),
        ({"recipe": "none_such"}, "the catalogue has"),
        ({"recipe": ["digits_mlp"]}, "the catalogue has"),
        ({"code": "print(1)"}, "has to be an object"),
        ({"code": {"filename": "../x.py", "text": "a"}}, "no folders"),
        ({"code": {"filename": ["x"], "text": "a"}}, "no folders"),
        ({"code": {"filename": "x.py"}}, "give text"),
        ({"code": {"filename": "x.sh", "text": "a"}}, "only .py and .zip"),
        ({"code": {"filename": "x.py", "content_base64": "***"}}, "not valid base64"),
        ({"code": {"filename": "x.py", "content_base64": "/w=="}}, "byte 0 is not UTF-8"),
        ({"code": {"filename": "x.py", "text": "\ud800"}}, "surrogate"),
        ({"code": {"filename": "x.py", "text": "def f(:\n"}}, "x.py, line 1: syntax error"),
        ({"code": {"filename": "x.py", "text": "a\x00b"}}, "source code string cannot contain null bytes"),
        ({"code": {"filename": "x.py", "text": "x = 1"}}, "build_model(params) is missing"),
        ({"code": {"sha256": "0" * 64}}, "no job that you can see"),
        ({"code": {"sha256": 5}}, "no job that you can see"),
    ],
)
def test_what_is_refused(request_, words, member):
    assert words in refusal(request_, member)


def test_both_missing_functions_are_named(member):
    words = refusal({"code": {"filename": "x.py", "text": "x = 1"}}, member)
    assert "build_model(params) is missing" in words
    assert "build_dataset(params, split) is missing" in words


def link(name, mode):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("../evil.py", b"")], "not the name of a file inside"),
        ([("/etc/evil.py", b"")], "not the name of a file inside"),
        ([("a/../../evil.py", b"")], "not the name of a file inside"),
        ([("C:evil.py", b"")], "not the name of a file inside"),
        ([("a\\..\\evil.py", b"")], "not the name of a file inside"),
        ([(link("passwd", stat.S_IFLNK | 0o777), b"/etc/passwd")], "link or a special file"),
        ([(link("disk", stat.S_IFBLK | 0o600), b"")], "link or a special file"),
        ([("A.txt", b"1"), ("a.txt", b"2")], "in the archive twice"),
        ([("a", b"1"), ("a/b", b"2")], "both a file and a folder"),
        ([("ä" * 101, b"")], "longer than 200 bytes"),
        ([("pkg/recipe.py", RECIPE)], "at the top of the archive"),
        ([("a.py", RECIPE), ("b.py", RECIPE)], "at the top of the archive"),
        ([(f"f{number}.txt", b"") for number in range(1001)], "at most 1000"),
        ([("zeros.bin", bytes(60_000_000)), ("recipe.py", RECIPE)], "looks like a zip bomb"),
        ([("recipe.py", b"def f(:")], "recipe.py, line 1: syntax error"),
    ],
)
def test_archives_that_are_refused(members, words, member):
    assert words in refusal(upload(zip_of(*members)), member)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_archives_that_nodes_would_not_unpack_are_refused_here(compression, member):
    content = bytearray(zip_of(("recipe.py", RECIPE), compression=compression))
    assert "plain zip" in refusal(upload(bytes(content)), member)
    content[50:60] = bytes(10)
    assert "plain zip" in refusal(upload(bytes(content)), member)


def test_an_archive_that_lies_about_its_sizes(member):
    content = bytearray(zip_of(("recipe.py", RECIPE), ("zeros.bin", bytes(5_000_000))))
    real = (5_000_000).to_bytes(4, "little")
    while real in content:
        at = content.index(real)
        content[at : at + 4] = (10).to_bytes(4, "little")
    assert "cannot be unpacked: Bad CRC-32 for file 'zeros.bin'" in refusal(upload(bytes(content)), member)


def test_broken_and_encrypted_archives(member):
    assert "cannot be unpacked" in refusal(upload(b"PK\x03\x04 not a zip"), member)
    content = bytearray(zip_of(("recipe.py", RECIPE)))
    content[6] |= 1
    central = content.index(b"PK\x01\x02")
    content[central + 8] |= 1
    assert "encrypted" in refusal(upload(bytes(content)), member)


def test_too_large(member, settings):
    settings.MAX_CODE_BYTES = 1000
    assert "larger than 0.001 MB" in refusal(upload(bytes(5000), "x.py"), member)
    assert "larger than 0.001 MB" in refusal({"code": {"filename": "x.py", "text": "#" * 1001}}, member)


def test_a_clone_names_stored_code_by_its_digest(member):
    job = make_job()
    program = programs.resolve({"code": {"sha256": job.code_id}}, by=member)
    assert (program.ref.sha256, program.content) == (job.code_id, RECIPE)


def test_a_node_gets_the_programs_of_its_replicas_only():
    replica = make_replica()
    assert programs.content_for(replica.node, replica.job.code_id) == RECIPE
    with pytest.raises(NotFound):
        programs.content_for(make_node(), replica.job.code_id)
    ended = make_replica(status=ReplicaStatus.EXITED)
    with pytest.raises(NotFound):
        programs.content_for(ended.node, ended.job.code_id)


def test_a_script_needs_no_functions_of_given_names(member):
    text = "import tensorflow as tf\ns = tf.distribute.experimental.ParameterServerStrategy(None)\n"
    program = programs.resolve({"kind": "script", "code": {"filename": "go.py", "text": text}}, by=member)
    assert isinstance(program, Program)
    assert (program.ref.entry, program.ref.archive, program.info.problems) == ("go.py", False, ())
    assert program.script.proposed_strategy is Strategy.PARAMETER_SERVER
    assert program.script.proposed_keras(Strategy.PARAMETER_SERVER) is Keras.TF_KERAS
    assert not program.script.serves
    broken = programs.resolve({"kind": "script", "code": {"filename": "go.py", "text": "def f(:\n"}}, by=member)
    assert "go.py, line 1: syntax error" in broken.errors[0].message


@pytest.mark.parametrize("text", ["", "# to be written\n", '"""A docstring."""\n'])
def test_a_script_that_does_nothing_is_refused(text, member):
    """As text, as a file, and as the entry of an archive."""
    archive = zip_of(("main.py", text.encode()), ("lib.py", b"print(1)"))
    file = {"filename": "main.py", "content_base64": base64.b64encode(text.encode()).decode()}
    for code in ({"filename": "main.py", "text": text}, file, upload(archive)["code"]):
        outcome = programs.resolve({"kind": "script", "code": code}, by=member)
        said = "main.py: this program does nothing: write one, or give the file that is to run"
        assert outcome.errors == [FieldError("code", said)]


def test_a_script_of_an_archive_is_named_by_its_entry(member):
    content = zip_of(("src/job.py", b"import helper"), ("src/helper.py", b"tf.distribute.Server()"), ("data.csv", b"1"))
    program = programs.resolve(
        {"kind": "script", "code": {**upload(content)["code"], "entry": "src/job.py"}}, by=member
    )
    assert program.ref.entry == "src/job.py"
    assert program.script.serves
    row = programs.save(program)
    job = make_job(owner=member)
    job.spec["code"] = msgspec.to_builtins(program.ref)
    job.code = row
    job.save()
    again = programs.resolve({"kind": "script", "code": {"sha256": program.ref.sha256}}, by=member)
    assert again.ref == program.ref
    for entry, words in (("", "name the file to run as entry"), ("no.py", "has no file 'no.py'")):
        given = {**upload(content)["code"], "entry": entry}
        outcome = programs.resolve({"kind": "script", "code": given}, by=member)
        assert words in outcome.errors[0].message
