"""The words that a job's fields are chosen from. A value is the name in REST and on the wire; labels are for pages."""

from worker_agent.protocol.states import Choice


class LrScaling(Choice):
    """How the learning rate follows the number of replicas in sync."""

    NONE = "none", "As given", "Every step uses the learning rate as given."
    LINEAR = "linear", "Linear", "Multiplied by the replicas in sync, because a step has that many times the examples."
    SQRT = "sqrt", "Square root", "Multiplied by the square root of the replicas in sync. Suits Adam and the like."


class Precision(Choice):
    """A Keras dtype policy."""

    FLOAT32 = "float32", "float32"
    MIXED_FLOAT16 = "mixed_float16", "mixed float16 (GPUs)"
    MIXED_BFLOAT16 = "mixed_bfloat16", "mixed bfloat16 (TPUs, newer GPUs)"


class Communication(Choice):
    """How the workers of MultiWorkerMirrored add up their gradients."""

    AUTO = "auto", "Chosen by TensorFlow"
    RING = "ring", "Ring over gRPC"
    NCCL = "nccl", "NCCL (GPUs)"


class CrossDevice(Choice):
    """How the devices of Mirrored add up their gradients."""

    AUTO = "auto", "Chosen by TensorFlow"
    NCCL = "nccl", "NCCL (GPUs)"
    HIERARCHICAL_COPY = "hierarchical_copy", "Hierarchical copy"
    REDUCTION_TO_ONE_DEVICE = "reduction_to_one_device", "Reduction to one device"


class Sharding(Choice):
    """Which worker reads which examples."""

    AUTO = "auto", "Chosen by Trainyard"
    DATA = "data", "By example"
    FILE = "file", "By file"
    OFF = "off", "Every worker reads all"


class Validator(Choice):
    """Who validates: the training processes, or a replica of its own that reads the checkpoints."""

    GANG = "gang", "By the gang, after each epoch"
    EVALUATOR = "evaluator", "By a separate evaluator"
