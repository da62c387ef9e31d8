"""How often something may be changed through REST, or a join be tried: counted per caller and process, so that a
script gone wild stops no colleague.
"""

import threading
import time
from collections import OrderedDict, deque

from django.http import HttpRequest
from ninja.throttling import BaseThrottle

CALLERS_REMEMBERED = 10_000


class Rate(BaseThrottle):
    """At most `calls` in any `period_s`, by person, or by address where nobody is signed in.

    Ninja's own throttles keep the request at hand in the shared object, which several threads would mix up.
    """

    def __init__(self, calls: int, *, period_s: float = 60.0) -> None:
        self.calls = calls
        self.period_s = period_s
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def allow_request(self, request: HttpRequest) -> bool:
        """True and counted, or False."""
        user = getattr(request, "user", None)
        caller = (
            f"user {user.pk}" if user is not None and user.is_authenticated else f"address {self.get_ident(request)}"
        )
        return self.allow(caller)

    def wait(self) -> float:
        """The most that one has to wait."""
        return self.period_s

    def allow(self, caller: str, *, now: float | None = None) -> bool:
        """The same for a caller known by name."""
        now = time.monotonic() if now is None else now
        with self._lock:
            times = self._times.setdefault(caller, deque())
            self._times.move_to_end(caller)
            while len(self._times) > CALLERS_REMEMBERED:
                self._times.popitem(last=False)
            while times and times[0] <= now - self.period_s:
                times.popleft()
            if len(times) >= self.calls:
                return False
            times.append(now)
            return True


WRITES = Rate(600)
JOINS = Rate(60)
