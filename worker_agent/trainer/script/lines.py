"""What other processes of the same script said with `trainyard.log`: lines appended to one file, read in a thread."""

import json
from pathlib import Path

from worker_agent.trainer.script.periodic import Periodic
from worker_agent.trainer.script.script_report import ScriptReport

READ_EVERY_S = 0.2


class Lines(Periodic):
    """The file that `TRAINYARD_SERIES` names."""

    def __init__(self, path: Path, report: ScriptReport) -> None:
        super().__init__("series-lines", READ_EVERY_S, self._read_on)
        self._path = path
        self._report = report
        self._read_bytes = 0
        self.start()

    def _read_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read_bytes += len(line)
                self._tell(line)

    def _tell(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            if "scalars" in said:
                self._report.scalars(int(said["step"]), {str(k): float(v) for k, v in said["scalars"].items()})
            else:
                self._report.progress(int(said["step"]), int(said["of"]), int(said["epoch"]), int(said["epochs"]))
        except (ValueError, KeyError, TypeError, AttributeError):  # somebody else wrote into the file
            return
