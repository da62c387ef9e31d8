"""For training programs: `import trainyard; trainyard.log(step, loss=…)`. Needs nothing installed or running."""

from trainyard.saving import save
from trainyard.telling import log, progress

__all__ = ["log", "progress", "save"]
