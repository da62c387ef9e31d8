"""A character-level language model: dilated causal convolutions that guess the next character."""

from pydoc_data.topics import topics

import keras
import numpy as np
import tensorflow as tf

TITLE = "Characters, language model"
DESCRIPTION = "Guesses the next character of Python's own help texts, which ship with Python, by causal convolutions."
PARAMS = {
    "characters": {"type": "int", "default": 60000, "min": 5000, "max": 500000, "help": "How much of the text is read"},
    "length": {"type": "int", "default": 64, "min": 8, "max": 512, "help": "Characters of one example"},
    "channels": {"type": "int", "default": 64, "min": 8, "max": 1024, "help": "Width of the network"},
    "layers": {"type": "int", "default": 4, "min": 1, "max": 8, "help": "Convolutions; each doubles the view back"},
    "lr": {"type": "float", "default": 0.004, "min": 1e-6, "max": 10.0, "help": "Learning rate of Adam"},
}
# Printable ASCII and the line break; index 0 is everything else.
ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
VALIDATION_PART = 10
OVERLAP = 4


def build_model(params):
    """A compiled model from characters to the scores of each one's successor."""
    channels = params["channels"]
    convolutions = [
        keras.layers.Conv1D(channels, 3, padding="causal", dilation_rate=2**layer, activation="relu")
        for layer in range(params["layers"])
    ]
    model = keras.Sequential(
        [
            keras.layers.InputLayer((params["length"],), dtype="int32"),
            keras.layers.Embedding(len(ALPHABET) + 1, channels),
            *convolutions,
            keras.layers.Dense(len(ALPHABET) + 1),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(params["lr"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_dataset(params, split):
    """Rows of (characters, the same one further on), overlapping; the last tenth of the text is kept for validation."""
    text = "\n".join(topics[name] for name in sorted(topics))[: params["characters"]]
    codes = np.array([ALPHABET.find(character) + 1 for character in text], dtype="int32")
    border = len(codes) - len(codes) // VALIDATION_PART
    codes = codes[border:] if split == "validation" else codes[:border]
    length = params["length"]
    starts = np.arange(0, len(codes) - length, length // OVERLAP)
    rows = np.stack([codes[start : start + length + 1] for start in starts])
    return tf.data.Dataset.from_tensor_slices((rows[:, :-1], rows[:, 1:]))
