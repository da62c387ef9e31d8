"""What an advice says, as data (a code and its figures), and the one table that makes sentences of it.

Nothing decides by a sentence. A figure is shown by the end of its name: `_share` as a percentage, `_ms`, `_bytes`,
`_bytes_per_s` with their units, all others as numbers or words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Figure = float | str


class Code(StrEnum):
    """Everything that an advice may say."""

    # Why a layout is refused.
    RULE = "rule"
    NO_ROOM = "no_room"
    NOT_PREDICTED = "not_predicted"
    STALE_REFUSED = "stale_refused"
    DEVICE_MEMORY = "device_memory"
    MACHINE_MEMORY = "machine_memory"
    # Why a step takes as long as it does.
    BASELINE = "baseline"
    SPEEDUP = "speedup"
    SLOWDOWN = "slowdown"
    MOSTLY_COMPUTE = "mostly_compute"
    GRADIENTS_TRAVEL = "gradients_travel"
    VARIABLES_TRAVEL = "variables_travel"
    PIECES_TRAVEL = "pieces_travel"
    SERVERS_BUSY = "servers_busy"
    SLOWEST_WAITED_FOR = "slowest_waited_for"
    OWN_PACE = "own_pace"
    BUBBLE = "bubble"
    APPLIES = "applies"
    INPUT_BOUND = "input_bound"
    SMALL_BATCH = "small_batch"
    ACCUMULATED = "accumulated"
    DIVIDED = "divided"
    CORRECTED = "corrected"
    HELD = "held"
    MEASURED = "measured"
    # What to know before it is taken.
    USUAL_CONSTANTS = "usual_constants"
    OTHER_CORES = "other_cores"
    OTHER_KERAS = "other_keras"
    OUTSIDE = "outside"
    FLOPS = "flops"
    NEAR_MEMORY = "near_memory"
    MEMORY_UNKNOWN = "memory_unknown"
    STALE = "stale"
    LOSSES_STOP_ALL = "losses_stop_all"
    LOSSES_STOP_ONE = "losses_stop_one"
    ONE_MACHINE = "one_machine"
    LOGICAL_DEVICES = "logical_devices"
    BUSY = "busy"
    LARGER_BATCH = "larger_batch"
    BATCH_PAYS_LESS = "batch_pays_less"
    NOISE_UNKNOWN = "noise_unknown"
    # What the verdict is.
    BEST = "best"
    LIKELY = "likely"
    CHEAPEST = "cheapest"
    TOO_CLOSE = "too_close"
    SURVIVES = "survives"
    STALE_WELCOME = "stale_welcome"
    ONLY_ONE = "only_one"
    NONE_FITS = "none_fits"
    # What would change it.
    CHANGE = "change"
    STALE_CHANGE = "stale_change"


@dataclass(frozen=True)
class Remark:
    """One thing said, with its figures: shares from 0 to 1, times in ms, sizes in bytes."""

    code: Code
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """It in words."""
        return SENTENCES[self.code].format(**{name: _shown(name, value) for name, value in self.figures.items()})

    def as_json(self) -> dict[str, object]:
        """As REST tells it."""
        return {"code": self.code.value, "figures": dict(self.figures), "sentence": self.sentence}


SENTENCES: Mapping[Code, str] = {
    Code.RULE: "{field}: {sentence}.",
    Code.NO_ROOM: "It has no room even on the idle cluster: {sentence}.",
    Code.NOT_PREDICTED: "The cores of a TPU are counted only when a job reaches it, so nothing is predicted. Test it.",
    Code.STALE_REFUSED: "It is left out: its workers use gradients that are some updates old, which you do not allow.",
    Code.DEVICE_MEMORY: "A device needs {needs_bytes}; one on {node} has {has_bytes}.",
    Code.MACHINE_MEMORY: "The processes on the machine of {node} need {needs_bytes}; it has {has_bytes}.",
    Code.BASELINE: "One device, nothing to communicate: the others are compared with it.",
    Code.SPEEDUP: "{times} × the examples of one device, with {devices} devices: {efficiency_share} efficient.",
    Code.SLOWDOWN: "With {devices} devices it is slower than one device: {times} × the examples.",
    Code.MOSTLY_COMPUTE: "{part_share} of a step is computing, so more devices help.",
    Code.GRADIENTS_TRAVEL: "{part_share} of a step ({part_ms}) sums {moved_bytes} of gradients at {link_bytes_per_s}.",
    Code.VARIABLES_TRAVEL: "{part_share} of an update moves {moved_bytes} to and from servers at {link_bytes_per_s}.",
    Code.PIECES_TRAVEL: "{part_share} of a step ({part_ms}) exchanges activations and gradients at {link_bytes_per_s}.",
    Code.SERVERS_BUSY: "{part_share} of an update waits in the queue of {servers} parameter servers.",
    Code.SLOWEST_WAITED_FOR: "{part_share} of a step waits for {node}, which takes {times} × as long as the mean.",
    Code.OWN_PACE: "The workers differ by {times} ×, and none waits for another.",
    Code.BUBBLE: "With {stages} stages and {parts} micro-batches each stage is idle {part_share} of a step.",
    Code.APPLIES: "{part_share} of a step is the optimizer, which more devices do not shorten.",
    Code.INPUT_BOUND: "{part_share} of a step waits for input: one process prepares {examples} examples for it.",
    Code.SMALL_BATCH: "A replica computes {batch} examples at once; each costs {times} × as much as in a full batch.",
    Code.ACCUMULATED: "It fits because each replica computes its batch in {parts} parts.",
    Code.DIVIDED: "It divides the model. Undivided it needs {needs_bytes}, and {node} has {has_bytes}.",
    Code.CORRECTED: "Corrected by {factor} ×: {runs} earlier runs took {ratio} × what the formula said.",
    Code.HELD: "Corrected by {factor} ×, the most that is allowed: {runs} earlier runs took {ratio} × what the formula "
    "said.",
    Code.MEASURED: "The mean of the formula ({formula_ms}) and a short measurement ({measured_ms}).",
    Code.USUAL_CONSTANTS: "No training on this cluster has calibrated {label}: the figure rests on usual constants.",
    Code.OTHER_CORES: "The model was measured with another number of cores than a replica would have here.",
    Code.OTHER_KERAS: "The model was measured with another Keras than this strategy needs.",
    Code.OUTSIDE: "A batch of {batch} is beyond what was measured ({low} to {high}); such a line can be far off.",
    Code.FLOPS: "The model was not measured: its speed follows from FLOPs and the device's peak.",
    Code.NEAR_MEMORY: "It fills {memory_share} of a memory, by estimate.",
    Code.MEMORY_UNKNOWN: "How much memory these machines have is unknown, so it may not fit.",
    Code.STALE: "A gradient is about {updates} updates old when it is applied; results differ from run to run.",
    Code.LOSSES_STOP_ALL: "It runs on {preemptible}; each loss stops all of it: {lost_share} of the time.",
    Code.LOSSES_STOP_ONE: "It runs on {preemptible}, but a lost worker stops only itself: {lost_share} of the time.",
    Code.ONE_MACHINE: "{processes} of its processes share the {cores} cores of one machine.",
    Code.LOGICAL_DEVICES: "Devices of one CPU share its cores: this shows that a program is correct, seldom a gain.",
    Code.BUSY: "It would wait now: other jobs hold devices that it needs.",
    Code.LARGER_BATCH: "{batch} examples a step instead of {asked}: the learning rate times {rate}, with warm-up, and "
    "so many times fewer updates.",
    Code.BATCH_PAYS_LESS: "{batch} examples are computed from the same weights: by the noise scale of {noise} that "
    "takes {more} × the examples for the same loss.",
    Code.NOISE_UNKNOWN: "{batch} examples are computed from the same weights; whether each still teaches as much "
    "was not measured.",
    Code.BEST: "{label} is best: {rate} examples/s, {times} × the next strategy, {next}.",
    Code.LIKELY: "{label} is probably best: {rate} examples/s, {times} × {next}. That is less than the "
    "figures may err: measure to be sure.",
    Code.CHEAPEST: "{label} is cheapest: {rate} examples/s on {devices}; {next} costs {times} × as much for the "
    "same examples.",
    Code.TOO_CLOSE: "Too close to call: {close} are within {limit_share} of each other. {label} is the simplest.",
    Code.SURVIVES: "Too close to call: {close} are within {limit_share} of each other. {label} goes on when a machine "
    "is lost.",
    Code.STALE_WELCOME: "Too close to call: {close} are within {limit_share} of each other. {label} updates "
    "asynchronously, as you wish.",
    Code.ONLY_ONE: "{label} is the only strategy that can run here: {rate} examples/s.",
    Code.NONE_FITS: "No strategy can run this model on this cluster. The nearest, {label}: {sentence}",
    Code.CHANGE: "With {what} {direction} {value} instead of {now}, {label} would win.",
    Code.STALE_CHANGE: "If stale gradients were allowed, {label} would win.",
}


def _shown(name: str, value: Figure) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_share"):
        return f"{value:.0%}" if value >= 0.01 or value == 0 else f"{value:.1%}"
    if name.endswith("_bytes_per_s"):
        return f"{amount(value)}/s"
    if name.endswith("_bytes"):
        return amount(value)
    if name.endswith("_ms"):
        return f"{value:.3g} ms" if value < 1000 else f"{value / 1000:.3g} s"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"


def amount(size_bytes: float) -> str:
    """`3.2 GB`, in powers of 1000."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} bytes"
