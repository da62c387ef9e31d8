"""What a launch looks like to an agent of the version before, which refuses fields that it does not know."""

import msgspec

from tests.agent.plans import make_launch, make_spec
from worker_agent.protocol import codec
from worker_agent.protocol.commands import NEWER_FIELDS, Launch, sendable
from worker_agent.protocol.job.job_spec import FILES_KEPT, JobSpec


def sent(**spec: object) -> tuple[set[str], Launch]:
    """The newer fields that travel, and what an agent of this version reads."""
    body = codec.encode(sendable(make_launch(spec=make_spec(**spec))))
    read = codec.decode_command(body)
    assert isinstance(read, Launch)
    return NEWER_FIELDS & msgspec.msgpack.decode(body)["spec"].keys(), read


def test_newer_fields_travel_where_a_job_sets_them() -> None:
    assert sent()[0] == set()
    assert sent(files=FILES_KEPT, printed="")[0] == set()
    names, read = sent(printed="loss", max_steps=7)
    assert names == {"printed", "max_steps"}
    assert read.spec == make_spec(printed="loss", max_steps=7)


def test_newer_fields_are_fields_with_a_default() -> None:
    required = {each.name for each in msgspec.structs.fields(JobSpec) if each.required}
    assert set(JobSpec.__struct_fields__) >= NEWER_FIELDS
    assert not NEWER_FIELDS & required
