"""Small well-conditioned models by which strategies are compared: each case leans on another part of the loop.

For Keras 3 and tf_keras alike. At the end every process tells of its weights: `weights_crc`, equal when they are equal
bit for bit, and `weights_norm`.
"""

import zlib

import keras
import numpy as np
import tensorflow as tf

from trainyard import log

TITLE = "Equal"
DESCRIPTION = "For tests."
PARAMS = {
    "case": {
        "type": "choice",
        "default": "sgd",
        "choices": ["sgd", "adam", "adamw", "double", "overflow", "structures", "synchronized", "own_step", "table"],
        "help": "",
    }
}
WIDTH = 8
ROWS = 240
RAGGED = 263  # batches of 24, and 23 rows over: half of them are one batch more for the first of two workers
TABLE = 50_000


class OwnStep(keras.Model):
    """A model with a train_step of its own, as Keras' guide writes it."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="tanh")
        self.out = keras.layers.Dense(3)
        self.tracker = keras.metrics.Mean(name="loss")
        self.fit = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def call(self, x):
        return self.out(self.hidden(x))

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        x, y = data
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.GradientTape() as tape:
            each = self.fit(y, self(x, training=True))
            loss = tf.reduce_mean(each) / replicas
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(each)
        return {"loss": self.tracker.result()}

    def test_step(self, data):
        x, y = data
        self.tracker.update_state(self.fit(y, self(x, training=False)))
        return {"loss": self.tracker.result()}


def build_model(params):
    """The model of the case, compiled."""
    case, optimizers = params["case"], keras.optimizers
    if case == "structures":
        return _structures()
    if case == "double":
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
    if case == "own_step":
        model = OwnStep()
        model.compile(optimizers.SGD(0.2, global_clipnorm=0.3))
        return model
    if case == "table":
        words = keras.Input((5,), dtype="int32")
        model = keras.Model(
            words, keras.layers.Dense(3)(keras.layers.Flatten()(keras.layers.Embedding(TABLE, 12)(words)))
        )
        optimizer = optimizers.SGD(2.0, global_clipnorm=0.3)
    else:
        # What rounds at the kink of a ReLU takes another step (docs/strategies.md): not in float64.
        activation = "relu" if case == "double" else "tanh"
        hidden = keras.layers.Dense(16, activation=activation, kernel_regularizer="l2", name="hidden")
        layers = [keras.layers.InputLayer((WIDTH,)), hidden]
        layers += [keras.layers.BatchNormalization(synchronized=True)] if case == "synchronized" else []
        model = keras.Sequential([*layers, keras.layers.Dense(3, name="scores")])
        optimizer = {
            "sgd": lambda: optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
            "adam": lambda: optimizers.Adam(0.01),
            "double": lambda: optimizers.Adam(0.01),
            "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.02, clipnorm=0.5),
            "synchronized": lambda: _scaling(optimizers.Adam(0.01, global_clipnorm=0.3), 2.0**10),
            "overflow": lambda: _scaling(optimizers.Adam(0.02), 2.0**24),
        }[case]()
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def _scaling(optimizer, first):
    if keras.__name__ == "tf_keras":
        return keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=first)
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=first)


def _structures():
    """Two inputs with a mask, two outputs by name, losses of the layers, and an optimizer with everything on."""
    words = keras.Input((5,), dtype="int32", name="words")
    numbers = keras.Input((WIDTH,), name="numbers")
    told = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 6, mask_zero=True)(words))
    hidden = keras.layers.Dense(16, activation="tanh", kernel_regularizer=keras.regularizers.L2(1e-3))(
        keras.layers.Concatenate()([told, numbers])
    )
    hidden = keras.layers.ActivityRegularization(l2=1e-3)(hidden)
    outputs = {"kind": keras.layers.Dense(3, name="kind")(hidden), "size": keras.layers.Dense(1, name="size")(hidden)}
    model = keras.Model({"words": words, "numbers": numbers}, outputs)
    model.compile(
        keras.optimizers.AdamW(0.02, weight_decay=0.01, clipnorm=0.05, use_ema=True, ema_overwrite_frequency=7),
        loss={"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.3},
        metrics={"kind": ["accuracy"]},
        weighted_metrics={"size": ["mae"]},
    )
    return model


def build_stages(params, count):
    """The two Dense layers, each a stage."""
    return [["hidden"], ["scores"]]


def build_dataset(params, split):
    """Points and which of three directions they lie in; `ROWS` to learn from (or `RAGGED`), and 101, which divide by
    nothing."""
    random = np.random.RandomState(7)
    rows = RAGGED if params["case"] == "double" else ROWS
    some = slice(0, rows) if split == "train" else slice(rows, rows + 101)
    x = random.randn(rows + 101, WIDTH).astype(keras.backend.floatx())
    y = (x @ random.randn(WIDTH, 3)).argmax(axis=1).astype("int32")
    words = random.randint(0, TABLE if params["case"] == "table" else 20, (len(x), 5)).astype("int32")
    weight = random.uniform(0.5, 1.5, len(x)).astype("float32")
    if params["case"] == "table":
        return tf.data.Dataset.from_tensor_slices((words[some], y[some]))
    if params["case"] != "structures":
        return tf.data.Dataset.from_tensor_slices((x[some], y[some]))
    inputs = {"words": words[some], "numbers": x[some]}
    targets = {"kind": y[some], "size": x[some, :1] * 0.5}
    return tf.data.Dataset.from_tensor_slices((inputs, targets, {"kind": weight[some], "size": weight[some]}))


class TellWeights(keras.callbacks.Callback):
    """At the end of the training."""

    def on_train_end(self, logs=None):
        for weight in self.model.trainable_weights:
            value = weight if isinstance(weight, tf.Variable) else weight.value
            first, *others = [copy.numpy() for copy in getattr(value, "values", [value])]
            assert all((first == other).all() for other in others), f"replicas differ in {weight.name}"
        weights = np.concatenate([np.ravel(weight) for weight in self.model.get_weights()])
        log(1, weights_crc=zlib.crc32(weights.tobytes()), weights_norm=np.linalg.norm(weights.astype("float64")))


class TellScale(keras.callbacks.Callback):
    """After each step: the scale of the loss, and how many steps were applied."""

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        applied = int(optimizer.inner_optimizer.iterations.numpy())
        self.steps = getattr(self, "steps", 0) + 1
        scale = optimizer.loss_scale if keras.__name__ == "tf_keras" else optimizer.dynamic_scale
        log(self.steps, scale=float(scale.numpy()), applied=applied)


def callbacks(params):
    """Only what tells."""
    return [TellWeights(), *([TellScale()] if params["case"] == "overflow" else [])]
