"""The gradient of an embedding table over two replicas: dense beside rows, in one interleaved run, with the trainer's
own reduction. Prints ms and the ratio rows / dense by size of the table and by the share of it that all replicas touch.

`python -m benchmarks.bare.rows`: between two processes by gRPC, then within one process. Takes about two minutes. The
borders in `worker_agent/protocol/job/sparse_rows.py` come from it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import tensorflow as tf

from tests.trainer.gang import free_ports
from worker_agent.trainer.model import reduce
from worker_agent.trainer.setup import runtime

MIB = 1024 * 1024
SIZES = [MIB // 2, MIB, 2 * MIB, 4 * MIB, 16 * MIB]
SHARES = [1 / 64, 1 / 16, 1 / 8, 1 / 4]
WIDTH = 16
REPLICAS = 2
ROUNDS = 9
QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def replica(kind: str) -> None:
    """Both ways take turns: the processes of a gang make the same calls, so none may stop earlier than the other."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if kind == "gRPC":
        strategy: Any = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        runtime.divide_cpu(REPLICAS)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for size in SIZES:
        for share in SHARES:
            table = size // 4 // WIDTH
            rows, calls = round(table * share / REPLICAS), max(2, min(20, 8 * MIB // size))
            ways = [_steps(strategy, table, rows, as_rows=as_rows) for as_rows in (False, True)]
            for way in ways:
                way(calls)
            rounds = [[_timed(way, calls) for way in ways] for _ in range(ROUNDS)]
            dense, sparse = (median(times) for times in zip(*rounds, strict=True))
            ratio = median(after / before for before, after in rounds)
            if strategy.cluster_resolver is None or strategy.cluster_resolver.task_id == 0:
                print(f"{kind:<8}{size / MIB:>5} MiB{share:>8.3f}{dense:>9.2f}{sparse:>9.2f}{ratio:>7.2f}", flush=True)
    os._exit(0)  # at its end a gang of TensorFlow's may wait for one that has left


def _steps(strategy: Any, table: int, rows: int, *, as_rows: bool) -> Callable[[int], Any]:
    def step(i: tf.Tensor) -> tf.Tensor:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group
        touched = tf.random.stateless_uniform([rows], tf.stack([i, place]), 0, table, tf.int64)
        slices = tf.IndexedSlices(tf.ones([rows, WIDTH]), touched, tf.constant([table, WIDTH], tf.int64))
        summed, _ = reduce.all_reduce([slices, tf.ones(4)])
        return tf.reduce_sum(summed.values[0]) if as_rows else summed[0, 0]

    @tf.function(autograph=False)
    def steps(calls: tf.Tensor) -> tf.Tensor:
        reduce.travels_as_rows = lambda **_: as_rows  # read while this is traced
        one = lambda i, _: (i + 1, strategy.experimental_local_results(strategy.run(step, args=(i,)))[0])  # noqa: E731
        return tf.while_loop(lambda i, _: i < calls, one, (0, 0.0), parallel_iterations=1)[1]

    return lambda calls: steps(tf.constant(calls)).numpy()


def _timed(way: Callable[[int], Any], calls: int) -> float:
    """Milliseconds for each of so many."""
    began = perf_counter()
    way(calls)
    return 1000 * (perf_counter() - began) / calls


def main() -> None:
    """Start the replicas of both kinds, one kind after the other."""
    print(f"{'by':<8}{'table':>9}{'share':>8}{'dense':>9}{'rows':>9}{'ratio':>7}", flush=True)
    workers = [f"127.0.0.1:{port}" for port in free_ports(REPLICAS)]
    for kind, configs in (("gRPC", [{"index": index} for index in range(REPLICAS)]), ("memory", [{}])):
        running = []
        for task in configs:
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", **task}} if task else {}
            env = {**os.environ, **QUIET, "TF_CONFIG": json.dumps(config)}
            command = [sys.executable, "-m", "benchmarks.bare.rows", kind]
            running.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
        for process in running:
            process.wait(300)


if __name__ == "__main__":
    replica(sys.argv[1]) if len(sys.argv) > 1 else main()
