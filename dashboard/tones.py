"""The signal colour of every word that a page shows in one, and the silhouette of a word that has none of its own.

Templates read it through `|tone` and `{% shape %}`; the browser's modules through what templates printed with it.
"""

STATES_OF_TONES = {
    "grey": ("submitted", "stopping", "stopped", "free", "assigned", "exited"),
    "teal": ("launching", "starting"),
    "blue": ("running", "held"),
    "violet": ("restarting", "draining"),
    "amber": ("pausing", "paused", "cordoned", "leaving", "dirty", "warning"),
    "green": ("succeeded", "completed", "ready", "success"),
    "red": ("failed", "lost", "error"),
}
TONES = {state: colour for colour, states in STATES_OF_TONES.items() for state in states}
SHAPES = {"completed": "succeeded", "assigned": "submitted", "starting": "launching", "exited": "stopped"}
# Of a device: from which temperature on.
HEAT_TONES = ((-273, "blue"), (80, "amber"), (85, "red"))


def tone_of(word: object) -> str:
    """The signal colour of a state or of a message's level."""
    return TONES.get(str(word), "grey")


def tone_of_heat(celsius: float) -> str:
    """The signal colour of a temperature."""
    return [tone for from_c, tone in HEAT_TONES if celsius >= from_c][-1]
