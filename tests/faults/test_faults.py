"""A seeded part of the fault suite for `make test`; all of it is `make faults`."""

import pytest

from tests.faults.injectors import FAULTS
from tests.faults.installation.machines import unavailable
from tests.faults.installation.yard import Yard
from tests.faults.report import line_of, table_of
from tests.faults.suite import random_faults

SEED, MINUTES = 4, 0.2
QUICK = {
    *("web killed", "celery killed", "sweep killed", "ingest killed", "redis killed", "redis emptied"),
    *("agent killed", "cable out, short", "no route, short", "rank killed", "commands repeated"),
}

pytestmark = [pytest.mark.stack, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]


def test_faults_on_a_busy_cluster_leave_nothing_lost_doubled_or_behind(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    faults = [fault for fault in FAULTS if fault.name in QUICK]
    rows = []
    with Yard(tmp_path_factory.mktemp("y")) as yard:
        for row in random_faults(yard, seed=SEED, minutes=MINUTES, faults=faults, most_steps=60, short_s=2.0):
            print(line_of(row))
            rows.append(row)
    assert not [words for row in rows for words in row.verdict.wrong], table_of(rows)
    assert sum(row.verdict.points.stored for row in rows) > 0
