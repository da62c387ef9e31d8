"""Whether a TPU answers at the address that a job names. TensorFlow would ask it without a time limit.

A preflight looks on the node, and the launcher of scripts before the program begins. What is no address (a TPU's mere
name, `local`) TensorFlow looks up by itself, and says so when there is none.
"""

import socket
from urllib.parse import urlsplit

LOOK_S = 2.0

_SCHEME = "grpc://"
_USUAL_PORT = 8470  # tensorflow/python/tpu/client/client.py


def why_silent(tpu: str) -> str:
    """Why nothing accepts a connection at `tpu`, which is `grpc://host:port` (or several, with commas), as a clause.

    "" where something does, or where it is no address.
    """
    if not tpu.startswith(_SCHEME):
        return ""
    try:
        for each in tpu.split(","):
            place = urlsplit(f"//{each.strip().removeprefix(_SCHEME)}")
            if not place.hostname:
                return "it names no host"
            socket.create_connection((place.hostname, place.port or _USUAL_PORT), timeout=LOOK_S).close()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except ValueError as error:  # a port that is no number, a host that is no name
        return str(error).lower()
    return ""
