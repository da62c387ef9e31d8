"""The frozen, versioned description of a job: what a person asked for, and nothing that was decided for them."""

import msgspec

from worker_agent.protocol.states import Strategy

ParamValue = bool | int | float | str


class CodeRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's program by content: `sha256` of the stored bytes (one `.py`, or a `.zip`).

    `entry` is the recipe file inside the archive, or the file's own name. `recipe` names the catalogue entry it came
    from, empty for uploaded or edited code.
    """

    sha256: str
    entry: str
    archive: bool = False
    recipe: str = ""


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job as its owner described it. Sizes are counts; `learning_rate` None leaves the recipe's own.

    `global_batch_size` examples make one optimizer step over all replicas. `lr_scaling` is "none" or "linear"
    (Goyal et al. 2017): the rate is multiplied by the number of replicas in sync and reached over `warmup_epochs`.
    `time_limit_s` 0 means no limit.
    """

    name: str
    cluster: str
    code: CodeRef
    strategy: Strategy
    params: dict[str, ParamValue] = {}
    workers: int = 1
    ps: int = 0
    devices_per_worker: int = 1
    global_batch_size: int = 64
    epochs: int = 5
    learning_rate: float | None = None
    lr_scaling: str = "none"
    warmup_epochs: float = 0.0
    seed: int = 0
    env: dict[str, str] = {}
    priority: int = 0
    time_limit_s: int = 0
    version: int = 1
