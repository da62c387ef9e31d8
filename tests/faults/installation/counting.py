"""The counting trainer, and what it really did: every point and line is written beside the product as well.

The program is a script job like a user's, without TensorFlow. For each step it notes that it is about to speak, speaks
(`trainyard.log`, one line of output) and notes that it has spoken: so of a process killed in between, what may and what
must have arrived are both known. It also notes its environment, in which no secret may be.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

CLUSTER = "yard"
PROGRAM = '''
"""Count to `steps`, one every `wait` seconds. Arguments: folder of truth, steps, wait, way to end."""
import json, os, signal, sys, time
from pathlib import Path

import trainyard

folder, steps, wait, end = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
names = ("TRAINYARD_JOB_ID", "TRAINYARD_ATTEMPT", "TRAINYARD_REPLICA_ID")
path = folder / ("-".join(os.environ[name] for name in names) + ".jsonl")
truth = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(**words):
    os.write(truth, json.dumps(words | {"at": time.monotonic()}).encode() + b"\\n")


note(pid=os.getpid(), role=os.environ["TRAINYARD_ROLE"], environment=dict(os.environ))
if end == "stubborn":  # neither it nor a child in a session of its own heeds SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(60)
for step in range(1, steps + 1):
    loss = 1.0 / (step + os.getpid())
    line = f"count {step} of {steps}, loss {loss!r} \\u2713"
    note(step=step, loss=loss, line=line)
    trainyard.progress(step, of=steps)
    trainyard.log(step, loss=loss)
    print(line, flush=True)
    note(said=step)
    time.sleep(wait)
if end == "raise":
    raise ValueError("the canary is silent")
if end == "exit":
    sys.exit(3)
if end == "memory":
    raise MemoryError("no room for another wagon")
note(done=True)
'''


@dataclass
class Truth:
    """One process: what it was about to say, what it had said, and when (monotonic seconds of the machine)."""

    job_id: int
    attempt: int
    replica_id: int
    pid: int = 0
    role: str = ""
    environment: str = ""
    points: list[tuple[int, float]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    said: int = 0
    said_at: dict[int, float] = field(default_factory=dict)
    began_at: float = 0.0
    last_at: float = 0.0
    is_done: bool = False

    def surely_said(self, *, before_s: float) -> int:
        """How many steps it had told at least `before_s` before its last sign of life."""
        return sum(at <= self.last_at - before_s for at in self.said_at.values())


def request(
    folder: Path, *, steps: int, wait_s: float, workers: int, end: str = "well", **more: object
) -> dict[str, object]:
    """The job, as REST takes it: a gang of `workers` processes that count, and end as `end` says."""
    return {
        "name": "counting",
        "cluster": CLUSTER,
        "kind": "script",
        "code": {"filename": "counting.py", "text": PROGRAM},
        "strategy": "multi_worker_mirrored" if workers > 1 else "one_device",
        "workers": workers,
        "arguments": [str(folder), str(steps), str(wait_s), end],
        **more,
    }


def read(folder: Path, job_id: int) -> list[Truth]:
    """What all processes of a job did, in the order of their attempts; none that was ended before its first note."""
    begun = (path for path in folder.glob(f"{job_id}-*.jsonl") if path.stat().st_size)
    return sorted(map(_read, begun), key=lambda truth: (truth.attempt, truth.replica_id))


def _read(path: Path) -> Truth:
    truth = Truth(*map(int, path.stem.split("-")))
    for line in path.read_text().splitlines():
        words = json.loads(line)
        truth.last_at = words["at"]
        if "pid" in words:
            truth.pid, truth.role, truth.began_at = words["pid"], words["role"], words["at"]
            truth.environment = json.dumps(words["environment"])
        elif "step" in words:
            truth.points.append((words["step"], words["loss"]))
            truth.lines.append(words["line"])
        elif "said" in words:
            truth.said = words["said"]
            truth.said_at[words["said"]] = words["at"]
        else:
            truth.is_done = True
    return truth
