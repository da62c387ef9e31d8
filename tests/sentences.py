"""Sentences that stand in for real ones, where a test shows that no decision reads them."""

# The words that ends of processes are described with: a rule that reads one of them finds it here.
BAIT = (
    "UnavailableError: Connection reset by peer; Socket closed; failed to connect to all addresses; peer went away; "
    "Coordination service agent stopped sending heartbeats; collective ring order was cancelled, CancelledError, "
    "aborted, StartAbort UNAVAILABLE, DEADLINE_EXCEEDED, timed out, killed by signal 9 (SIGKILL), out of memory, OOM, "
    "RESOURCE_EXHAUSTED, port in use, no space left on device, node lost, lease, suspended, hung, preempted, restarted"
)
MUTE = ("x", BAIT)
