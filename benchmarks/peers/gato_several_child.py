"""Run gato-hep's three-class example: executed by an environment of its own, see `gato_several`.

The recipe is that of the README in gato-hep's wheel: a Gaussian mixture over the first two softmax scores, the loss
-sqrt(Z1 Z2), RMSprop with a learning rate of 0.05, 100 epochs, a temperature of 0.3.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

RATE, TEMPERATURE = 0.05, 0.3
CHUNK = 200_000
GRID = 400  # cells per score of compressed events


def write_toy(path: str, seed: str, times: str) -> None:
    """Write the events of gato-hep's own generator (700,000 each time), of as many seeds as `times` says."""
    generate = import_module("gatohep.data_generation").generate_toy_data_3class_3D
    scores, process, weight = [], [], []
    for i in range(int(times)):
        for name, frame in generate(seed=int(seed) + 1000 * i).items():
            scores.append(np.stack(frame["NN_output"].to_numpy()))
            process.append(np.full(len(frame), name))
            weight.append(frame["weight"].to_numpy() / int(times))
    np.savez(path, scores=np.concatenate(scores), process=np.concatenate(process), weight=np.concatenate(weight))


def compressed(scores: Any, weight: Any) -> tuple[Any, Any]:
    """Mean scores and summed weights of the cells of a grid."""
    cell = (scores * GRID).astype(np.int64) @ np.array([GRID + 1, 1])
    _, index = np.unique(cell, return_inverse=True)
    total = np.bincount(index, weight)
    means = np.stack([np.bincount(index, weight * s) for s in scores.T], axis=1) / total[:, None]
    return means, total


def search(tune: str, test: str, out: str, *options: str) -> None:
    """Find `k` categories; write the category of every event of both files and the processor time of the search."""
    seed, k, compress, epochs = options
    tf, models = map(import_module, ("tensorflow", "gatohep.models"))
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with np.load(tune) as events:
        scores, process, weight = events["scores"][:, :2], events["process"], events["weight"]
    tensors = {}
    for name in np.unique(process).tolist():
        own = scores[process == name], weight[process == name]
        values, weights = compressed(*own) if compress == "compressed" else own
        tensors[name] = {
            "NN_output": tf.constant(values, tf.float32),
            "weight": tf.constant(weights, tf.float32),
        }
    tf.random.set_seed(int(seed))
    start, start_cpu = time.perf_counter(), time.process_time()
    model = models.gato_gmm_model(n_cats=int(k), dim=2, temperature=TEMPERATURE, mean_norm="softmax")
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=RATE)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> None:
        with tf.GradientTape() as tape:
            z = model.get_differentiable_significance(tensors, signal_labels=["signal1", "signal2"])
            loss = -tf.sqrt(z["signal1"] * z["signal2"])
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(int(epochs)):
        step()
    seconds, processor = time.perf_counter() - start, time.process_time() - start_cpu
    found = {"tune": _categories(model, scores)}
    with np.load(test) as events:
        found["test"] = _categories(model, events["scores"][:, :2])
    np.savez(out, **found, seconds=seconds, processor=processor)
    print(json.dumps({"seconds": seconds, "processor": processor}))


def _categories(model: Any, scores: Any) -> Any:
    """Hard categories, some events at a time."""
    parts = [
        model.get_bin_indices(scores[i : i + CHUNK].astype(np.float32)).numpy() for i in range(0, len(scores), CHUNK)
    ]
    return np.concatenate(parts).astype(np.int8)


if __name__ == "__main__":
    (write_toy if sys.argv[1] == "toy" else search)(*sys.argv[2:])
