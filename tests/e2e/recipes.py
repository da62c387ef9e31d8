"""Programs that tests send in: small recipes, most of them wrong in one way."""

HEAD = """
import keras
import numpy as np
import tensorflow as tf

PARAMS = {}
"""

MODEL = """
def build_model(params):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model
"""

DATA = """
def build_dataset(params, split):
    rng = np.random.default_rng(0)
    return tf.data.Dataset.from_tensor_slices((rng.random((640, 4), "float32"), rng.random((640, 1), "float32")))
"""

SMALL = HEAD + MODEL + DATA

STANDS_STILL = (
    SMALL
    + """
def callbacks(params):
    return [Lock()]

class Lock(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            waits_for_a_lock()

def waits_for_a_lock():
    import threading
    threading.Event().wait()
"""
)

NOT_FINITE = HEAD + MODEL + DATA.replace('rng.random((640, 1), "float32")', "np.full((640, 1), np.nan, 'float32')")

LONG_LINE = SMALL.replace(
    "def build_model(params):", "def build_model(params):\n    print('x' * 10_000_000, flush=True)"
)

ODD_METRIC_NAME = "<script>document.title='broken'</script>"
ODD_METRIC = (
    SMALL
    + f"""
class Odd(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        from trainyard import log
        log(batch, **{{{ODD_METRIC_NAME!r}: float(batch)}})


def callbacks(params):
    return [Odd()]
"""
)

SYNTAX_ERROR = HEAD + "def build_model(params:\n    pass\n"
MISSING_FUNCTION = HEAD + MODEL
