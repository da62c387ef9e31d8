"""For training programs: `import trainyard; trainyard.log(step, loss=…)`. Needs nothing installed or running."""

from trainyard.telling import log, progress

__all__ = ["log", "progress"]
