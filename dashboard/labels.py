"""What the new-job form calls the fields and values of a request, for sentences that name them as REST does.

The rules of the control plane write such a name in backquotes; `in_labels` puts what stands on the form in its place.
Called by `forms.py` for errors, by `templatetags/fields.py` for findings. A test holds the labels to the page's.
"""

import re

from orchestrator.domain.job.strategies import WORDS

FIELDS = {
    "accumulation": "Passes a step",
    "arguments": "Arguments",
    "checkpoint_steps": "One every",
    "checkpoints_kept": "Checkpoints kept",
    "devices_per_worker": "Devices per worker",
    "epochs": "Epochs",
    "global_batch_size": "Global batch size",
    "jit": "Compile the step with XLA",
    "keras": "Keras",
    "kind": "What it is",
    "lr_scaling": "Learning rate with more replicas",
    "micro_batches": "Micro-batches",
    "precision": "Precision",
    "ps": "Parameter servers",
    "validation": "Validation",
    "workers": "Workers",
}
VALUES = {
    "auto": "Chosen by TensorFlow",
    "gang": "By the gang, after each epoch",
    "hierarchical_copy": "Hierarchical copy",
    "keras3": "Keras 3",
    "linear": "Linear",
    "mixed_bfloat16": "mixed bfloat16",
    "none": "As given",
    "reduction_to_one_device": "Reduction to one device",
    "ring": "Ring over gRPC",
    "script": "Script",
    "sqrt": "Square root",
    "tf_keras": "tf_keras (Keras 2)",
}
LABELS = FIELDS | VALUES | {strategy.value: words.label for strategy, words in WORDS.items()}
_NAMED = re.compile(r"`([^`]*)`")


def in_labels(sentence: str) -> str:
    """A sentence with the form's words for what it names; without backquotes."""
    return _NAMED.sub(lambda found: LABELS.get(found[1], found[1]), sentence)
