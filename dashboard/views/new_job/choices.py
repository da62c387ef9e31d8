"""What the new-job form offers to choose from, in words. Strategies are in `domain/job/strategies.py`."""

from orchestrator.domain.job.strategies import WORDS
from worker_agent.protocol.states import Strategy

Choice = tuple[str, str, str]

STRATEGIES: list[Choice] = [(strategy.value, WORDS[strategy].label, WORDS[strategy].summary) for strategy in Strategy]
KINDS: tuple[Choice, ...] = (
    ("recipe", "Recipe", "Gives a model and its data; Trainyard trains it, under any strategy."),
    ("script", "Script", "Any TensorFlow program, run as it stands, with TF_CONFIG set."),
)
SOURCES: tuple[Choice, ...] = (
    ("recipe", "Catalogue", "A recipe that is ready to run."),
    ("upload", "Upload", "A .py file, or a .zip."),
    ("text", "Text", "Written or changed on this page."),
    ("git", "Git", "Fetched from an address, at a branch, tag or commit."),
)
LR_SCALINGS: tuple[Choice, ...] = (
    ("none", "As given", "Every step uses the learning rate as it stands here."),
    ("linear", "Linear", "Times the replicas in sync, as one step sees that many times the examples."),
    ("sqrt", "Square root", "Times the square root of the replicas: milder, for Adam and its kin."),
)
OPTIONS: dict[str, list[tuple[str, str]]] = {
    "keras": [("", "Proposed"), ("keras3", "Keras 3"), ("tf_keras", "tf_keras (Keras 2)")],
    "communication": [("auto", "Chosen by TensorFlow"), ("ring", "Ring over gRPC"), ("nccl", "NCCL (GPUs)")],
    "cross_device": [
        ("auto", "Chosen by TensorFlow"),
        ("nccl", "NCCL (GPUs)"),
        ("hierarchical_copy", "Hierarchical copy"),
        ("reduction_to_one_device", "Reduction to one device"),
    ],
    "precision": [
        ("float32", "float32"),
        ("mixed_float16", "mixed float16 (GPUs)"),
        ("mixed_bfloat16", "mixed bfloat16 (TPUs, newer GPUs)"),
    ],
    "sharding": [
        ("auto", "Chosen with a reason"),
        ("data", "By example"),
        ("file", "By file"),
        ("off", "Every worker reads all"),
    ],
    "validation": [("gang", "By the gang, after each epoch"), ("evaluator", "By a process of its own")],
}
