"""Make `.venv` hold exactly what the locks in requirements/ say. Called by the Makefile with the system's Python.

    python3 scripts/environment.py all             the whole of Trainyard, for `make up` and `make test`
    python3 scripts/environment.py agent-cpu       a training machine's agent (agent-gpu with CUDA)

Standard library only. The virtual environment is made with what the machine has (ensurepip, else the system's pip,
else Debian's python3-venv when root); packages are installed by uv, or by pip where uv cannot. Every file is checked
against its hash. A second call with the same locks returns at once.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCKS = ROOT / "requirements"
# tf_keras names plain `tensorflow` as its dependency, which agents on CPUs replace by tensorflow-cpu.
WITHOUT_DEPENDENCIES = LOCKS / "no-deps.txt"
SUPPORTED = ((3, 11), (3, 12))


def main(which: str) -> None:
    """Bring the environment up to the lock `which`, saying what is done; silent when nothing is to do."""
    lock = LOCKS / f"{which}.txt"
    locks = [lock] if which == "control" else [lock, WITHOUT_DEPENDENCIES]
    stamp, wanted = VENV / ".trainyard", _fingerprint(locks)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    began = time.monotonic()
    if sys.version_info[:2] not in SUPPORTED:
        sys.exit(f"Trainyard needs Python 3.11 or 3.12; this is {sys.version.split()[0]}. Set PYTHON=… for make.")
    stamp.unlink(missing_ok=True)
    if not PYTHON.exists():
        _say("Creating .venv")
        _create_venv()
    _say(f"Installing the packages of requirements/{which}.txt (TensorFlow is large: this takes minutes once)")
    _install(locks)
    stamp.write_text(wanted)
    _say(f"Environment ready after {time.monotonic() - began:.0f} s")


def _create_venv() -> None:
    plain = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(plain, check=False, capture_output=True).returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.run([*plain, "--without-pip"], check=False, capture_output=True).returncode == 0 and _system_pip():
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit("This Python cannot make virtual environments. Install it first: apt-get install python3-venv")
    _say("This Python cannot make virtual environments: installing Debian's python3-venv")
    subprocess.run(["apt-get", "update", "-q"], check=True)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "python3-venv"], check=True)
    subprocess.run(plain, check=True)


def _install(locks: list[Path]) -> None:
    """Install all locks at once; complete locks need no resolving, so dependencies are not followed.

    Bytecode is compiled with them: where Python may not write it later (PYTHONDONTWRITEBYTECODE, a read-only image)
    each process that imports TensorFlow would else compile it again, 5 s of CPU each time.
    """
    files = [part for lock in locks for part in ("-r", str(lock))]
    pip = _pip()
    if (
        subprocess.run([*pip, "install", "-q", "--require-hashes", "-r", str(LOCKS / "uv.txt")], check=False).returncode
        == 0
    ):
        uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
        options = ["--compile-bytecode", "--require-hashes", "--no-deps"]
        done = subprocess.run([*uv, *options, *files], check=False, env=_uv_environment(pip))
        if done.returncode == 0:
            return
        _say("uv could not install them; trying pip")
    subprocess.run([*pip, "install", "--require-hashes", "--no-deps", *files], check=True)


def _pip() -> list[str]:
    inside = [str(PYTHON), "-m", "pip"]
    if subprocess.run([*inside, "--version"], check=False, capture_output=True).returncode == 0:
        return inside
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def _system_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0


def _uv_environment(pip: list[str]) -> dict[str, str]:
    """uv does not read pip's configuration: hand over the package index and the certificates named there."""
    listed = subprocess.run([*pip, "config", "list"], check=False, capture_output=True, text=True).stdout
    pairs = (line.split("=", 1) for line in listed.splitlines() if "=" in line)
    setting = {name.split(".")[-1].strip(":"): value.strip("'\"") for name, value in pairs}
    environment = dict(os.environ)
    for ours, theirs in (("UV_DEFAULT_INDEX", "index-url"), ("SSL_CERT_FILE", "cert")):
        if theirs in setting:
            environment.setdefault(ours, setting[theirs])
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    environment.setdefault("UV_HTTP_TIMEOUT", "180")
    return environment


def _fingerprint(locks: list[Path]) -> str:
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for lock in locks:
        digest.update(lock.read_bytes())
    return digest.hexdigest()


def _say(text: str) -> None:
    sys.stderr.write(f"trainyard: {text}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
