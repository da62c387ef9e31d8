"""What queries refuse with."""


class NotFound(Exception):
    """There is no such thing, or not for this person."""
