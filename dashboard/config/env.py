"""Every setting that comes from outside, read once from `TRAINYARD_*` environment variables and checked by type.

`settings.py` and the management commands are the only readers. Names, defaults and meaning are listed in
docs/settings.md, and a test keeps the two equal.
"""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker_agent.protocol.job.archive import PROGRAM_BYTES_MAX


class Env(BaseSettings):
    """The environment, typed. Durations in seconds."""

    model_config = SettingsConfigDict(env_prefix="TRAINYARD_", extra="ignore")

    secret_key: str = ""
    debug: bool = False
    data_dir: Path = Path("~/.trainyard")
    static_dir: str = ""
    database_url: str = ""
    redis_url: str = "redis://127.0.0.1:6379/0"
    agent_redis_url: str = ""
    public_url: str = "http://127.0.0.1:8000"
    allowed_hosts: list[str] = ["127.0.0.1", "localhost"]
    secure_cookies: bool = False
    node_lost_after_s: float = 7.0
    lease_s: float = Field(default=30.0, ge=0)
    hang_after_s: float | None = Field(default=None, ge=0)
    hang_phase_s: float = Field(default=1800.0, ge=0)
    rehearse: bool = True
    node_failures_cordon: int = Field(default=5, ge=0)
    zygote_idle_s: float = Field(default=600.0, ge=0)
    sweep_every_s: float = 2.0
    command_resend_s: float = 5.0
    command_expiry_s: float = 300.0
    stop_grace_s: float = 5.0
    pause_grace_s: float = 120.0
    rendezvous_timeout_s: float = 120.0
    max_code_bytes: int = Field(default=5_000_000, ge=1, le=PROGRAM_BYTES_MAX)
    max_artifact_bytes: int = 20_000_000_000
    log_json: bool = False


env = Env()
