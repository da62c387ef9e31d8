"""How much memory this process has needed."""

import resource


def peak_bytes() -> int:
    """The largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
