"""What has to survive a power cut."""

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: a file that was synchronised can be found again only then."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
