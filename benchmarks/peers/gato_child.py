"""Run gato-hep on the scores of an .npz file: executed by an environment of its own, see `gato_comparison`.

The training loop has the settings of gato-hep's own one-dimensional example: sigmoid boundaries, RMSprop with a
learning rate from 0.1 to 0.001 and a steepness from 50 to 10,000, both along a cosine. `penalty` weighs its penalty for
categories whose background is known to worse than 20 %; the example has none.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np


def optimise(
    tensors: dict[str, Any], n_categories: int, epochs: int, penalty: float
) -> tuple[list[float], float, float]:
    """Boundaries between the categories, and the seconds and processor seconds it took to find them."""
    tf, models, utils = map(import_module, ("tensorflow", "gatohep.models", "gatohep.utils"))
    losses = import_module("gatohep.losses")

    start, start_cpu = time.perf_counter(), time.process_time()
    tf.random.set_seed(0)
    model = models.gato_sigmoid_model(
        [{"name": "score", "bins": n_categories, "range": (0.0, 1.0)}], global_steepness=50.0
    )
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.1)
    rate = utils.LearningRateScheduler(optimizer, lr_initial=0.1, lr_final=0.001, total_epochs=epochs, mode="cosine")
    steepness = utils.SteepnessScheduler(model, t_initial=50.0, t_final=10000.0, total_epochs=epochs, mode="cosine")

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> None:
        with tf.GradientTape() as tape:
            z, b, b2 = model.get_differentiable_significance(tensors, signal_labels=["signal"], return_details=True)
            loss = penalty * losses.high_bkg_uncertainty_penalty(b2, b, rel_threshold=0.2) - z["signal"]
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            (g, v) for g, v in zip(gradients, model.trainable_variables, strict=True) if g is not None
        )

    for epoch in range(epochs):
        rate.update(epoch)
        steepness.update(epoch)
        step()
    boundaries = model.calculate_boundaries().numpy().tolist()
    return boundaries, time.perf_counter() - start, time.process_time() - start_cpu


def write_toy(path: str, seed: str, times: str) -> None:
    """Write the toy events of gato-hep's example, or `times` as many."""
    sizes = (100_000 * int(times), 300_000 * int(times))
    frames = import_module("gatohep.data_generation").generate_toy_data_1D(*sizes, seed=int(seed))
    np.savez(
        path,
        score=np.concatenate([frame["NN_output"] for frame in frames.values()]),
        weight=np.concatenate([frame["weight"] for frame in frames.values()]),
        signal=np.concatenate([np.full(len(frame), name == "signal") for name, frame in frames.items()]),
    )


def search(path: str, epochs: str, penalty: str, *n_categories: str) -> None:
    """Print the boundaries and times of each number of categories as JSON."""
    tf = import_module("tensorflow")
    with np.load(path) as events:
        score, signal, weight = events["score"], events["signal"], events["weight"]
    tensors = {
        name: {
            "NN_output": tf.constant(score[members][:, None], tf.float32),
            "weight": tf.constant(weight[members], tf.float32),
        }
        for name, members in (("signal", signal), ("background", ~signal))
    }
    found = [optimise(tensors, int(k), int(epochs), float(penalty)) for k in n_categories]
    print(json.dumps(found))


if __name__ == "__main__":
    (write_toy if sys.argv[1] == "toy" else search)(*sys.argv[2:])
