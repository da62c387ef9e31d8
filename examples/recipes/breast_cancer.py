"""A table of measurements, two classes: the classic tabular case."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_breast_cancer

TITLE = "Breast cancer, tabular"
DESCRIPTION = "569 tumours with 30 measurements each from scikit-learn; malignant or benign, by two dense layers."
PARAMS = {
    "units": {"type": "int", "default": 32, "min": 1, "max": 1024, "help": "Neurons of each hidden layer"},
    "optimizer": {"type": "choice", "default": "adam", "choices": ["adam", "sgd"], "help": "How weights are updated"},
    "l2": {"type": "float", "default": 0.0001, "min": 0.0, "max": 1.0, "help": "Penalty on large weights"},
    "lr": {"type": "float", "default": 0.003, "min": 1e-6, "max": 10.0, "help": "Learning rate"},
}
VALIDATION_EVERY = 5


def build_model(params):
    """A compiled classifier of 30 measurements: the probability that the tumour is benign."""
    penalty = keras.regularizers.L2(params["l2"])
    model = keras.Sequential(
        [
            keras.layers.InputLayer((30,)),
            keras.layers.Dense(params["units"], activation="relu", kernel_regularizer=penalty),
            keras.layers.Dense(params["units"], activation="relu", kernel_regularizer=penalty),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    rate = params["lr"]
    adam = params["optimizer"] == "adam"
    model.compile(
        optimizer=keras.optimizers.Adam(rate) if adam else keras.optimizers.SGD(rate, momentum=0.9),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=[keras.metrics.BinaryAccuracy(name="accuracy"), keras.metrics.AUC(name="auc")],
    )
    return model


def build_dataset(params, split):
    """Rows of (standardised measurements, 0 malignant or 1 benign); every fifth row is kept for validation."""
    table, benign = load_breast_cancer(return_X_y=True)
    held_out = np.arange(len(benign)) % VALIDATION_EVERY == 0
    known = table[~held_out]
    scaled = ((table - known.mean(axis=0)) / known.std(axis=0)).astype("float32")
    rows = held_out if split == "validation" else ~held_out
    return tf.data.Dataset.from_tensor_slices((scaled[rows], benign[rows].astype("float32")[:, None]))
