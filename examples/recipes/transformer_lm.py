"""A character-level transformer (pre-norm, causal attention) whose layers tensor parallelism splits over devices."""

import itertools
from pydoc_data.topics import topics

import keras
import numpy as np
import tensorflow as tf

TITLE = "Characters, transformer"
DESCRIPTION = (
    "A small transformer that guesses the next character of Python's own help texts. Under tensor parallel its "
    "attention heads, feed-forward layers and embeddings are split, so that no process holds all parameters; in a "
    "pipeline its blocks are."
)
PARAMS = {
    "characters": {"type": "int", "default": 60000, "min": 5000, "max": 500000, "help": "How much of the text is read"},
    "length": {"type": "int", "default": 64, "min": 8, "max": 512, "help": "Characters of one example"},
    "width": {"type": "int", "default": 64, "min": 8, "max": 8192, "help": "Features of a character; heads divide it"},
    "heads": {"type": "int", "default": 4, "min": 1, "max": 64, "help": "Attention heads of each block"},
    "blocks": {"type": "int", "default": 2, "min": 1, "max": 48, "help": "Blocks of attention and feed-forward"},
    "optimizer": {"type": "choice", "default": "adam", "choices": ["adam", "sgd"], "help": "How weights are updated"},
    "lr": {"type": "float", "default": 0.002, "min": 1e-6, "max": 10.0, "help": "Learning rate"},
}
# Printable ASCII and the line break; index 0 is everything else.
ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
SYMBOLS = 128
VALIDATION_PART = 10
OVERLAP = 4
BLOCK = ("norm_{}a", "attention_{}", "norm_{}b", "wide_{}", "narrow_{}", "block_{}")


def build_model(params):
    """A compiled model from characters to the scores of each one's successor."""
    width = params["width"]
    characters = keras.Input((params["length"],), dtype="int32")
    places = characters * 0 + np.arange(params["length"], dtype="int32")
    x = keras.layers.Embedding(SYMBOLS, width, name="characters")(characters)
    x = x + keras.layers.Embedding(params["length"], width, name="places")(places)
    for number in range(params["blocks"]):
        x = _block(x, number, params)
    x = keras.layers.LayerNormalization(name="last_norm")(x)
    model = keras.Model(characters, keras.layers.Dense(SYMBOLS, name="scores")(x))
    kinds = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
    model.compile(
        optimizer=kinds[params["optimizer"]](params["lr"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def _block(x, number, params):
    width, heads = params["width"], params["heads"]
    seen = keras.layers.LayerNormalization(name=f"norm_{number}a")(x)
    attention = keras.layers.MultiHeadAttention(heads, width // heads, name=f"attention_{number}")
    x = x + attention(seen, seen, use_causal_mask=True)
    seen = keras.layers.LayerNormalization(name=f"norm_{number}b")(x)
    wide = keras.layers.Dense(4 * width, activation="gelu", name=f"wide_{number}")(seen)
    narrow = keras.layers.Dense(width, name=f"narrow_{number}")(wide)
    return keras.layers.Add(name=f"block_{number}")([x, narrow])


def build_stages(params, count):
    """A pipeline's stages: whole blocks, spread evenly; the embeddings with the first, the scores with the last."""
    borders = [params["blocks"] * place // count for place in range(count + 1)]
    first, *others = [
        [name.format(number) for number in range(begin, end) for name in BLOCK]
        for begin, end in itertools.pairwise(borders)
    ]
    stages = [["characters", "places", *first], *others]
    stages[-1] += ["last_norm", "scores"]
    return stages


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
