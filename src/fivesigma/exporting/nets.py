"""A small net, from the columns of the table to its log-odds, in plain operators and double precision."""

from __future__ import annotations

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.exporting.graph import Graph
from fivesigma.learners.net.classifier import NetClassifier
from fivesigma.learners.net.inputs import FAR, NO_COLUMN, STEEP, Inputs
from fivesigma.learners.net.settings import symmetric_copies


def net_probability(graph: Graph, table: str, net: NetClassifier) -> str:
    """P(second class) of a net: the mean of the log-odds over symmetric copies, through the logistic function."""
    inputs = net.inputs_
    copies = symmetric_copies(net.n_augment) if len(inputs.momenta) else [(0.0, 1.0, 1.0)]
    seen = _repeated(graph, _scalars(graph, table, inputs), len(copies))
    if len(inputs.momenta):
        turned = graph.add("MatMul", _vectors(graph, table, inputs), _turns(copies, len(inputs.momenta)))
        seen = graph.add("Concat", seen, turned, axis=2)
    layers = [layer.astype(np.float64) for layer in net.weights_]
    for weight, offset in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        linear = graph.add("Add", graph.add("MatMul", seen, weight.T), offset)
        # SiLU without Sigmoid: older versions of onnxruntime fuse the two into an operator without double precision.
        out = graph.add("Div", linear, graph.add("Add", graph.add("Exp", graph.add("Neg", linear)), 1.0))
        seen = graph.add("Concat", out, seen, axis=2)
    log_odds = graph.add("Add", graph.add("MatMul", seen, layers[-2].T), layers[-1])
    return graph.add("Sigmoid", graph.add("ReduceMean", log_odds, np.array([0]), keepdims=0))


def _repeated(graph: Graph, table: str, n: int) -> str:
    """Copies of a table, along a new first axis."""
    stacked = graph.add("Unsqueeze", table, np.array([0]))
    return stacked if n == 1 else graph.add("Expand", stacked, np.array([n, 1, 1]))


def _turns(copies: list[tuple[float, float, float]], n_momenta: int) -> Array:
    """Matrices that turn the components of all momenta, (x, y, z) of one after the other, into all x, all y, all z."""
    out = np.zeros((len(copies), 3 * n_momenta, 3 * n_momenta))
    for matrix, (angle, mirror, flip) in zip(out, copies, strict=True):
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[cos, -sin * mirror, 0.0], [sin, cos * mirror, 0.0], [0.0, 0.0, flip]])
        for k in range(n_momenta):
            matrix[3 * k : 3 * k + 3, k::n_momenta] = turn.T
    return out


def _scalars(graph: Graph, table: str, inputs: Inputs) -> str:
    """Columns and flags of what is missing."""
    x = _compressed(graph, graph.columns(table, inputs.columns), inputs.units)
    x = graph.add("Mul", graph.add("Sub", x, inputs.means), inputs.factors)
    x = graph.add("Where", graph.add("IsNaN", x), 0.0, x)  # before the limits, which runtimes apply to NaN too
    x = _rounded(graph, graph.add("Clip", x, -FAR, FAR))
    _note_columns(graph, table, inputs)
    if not inputs.flags.size:
        return x
    flags = graph.add("IsNaN", graph.columns(table, inputs.flags))
    return graph.add("Concat", x, graph.cast(flags, np.float64), axis=1)


def _vectors(graph: Graph, table: str, inputs: Inputs) -> str:
    """Components of all momenta, (x, y, z) of one after the other."""
    parts = [
        _vector(graph, table, columns, inputs.momentum_units[k], inputs.momentum_factors[k])
        for k, columns in enumerate(inputs.momenta)
    ]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _vector(graph: Graph, table: str, columns: IntArray, units: Array, factors: Array) -> str:
    """One momentum as a vector whose length is a logarithm; zero where a part of it is missing."""
    pt, eta, phi = (None if c == NO_COLUMN else graph.columns(table, c) for c in columns)
    assert pt is not None and phi is not None  # noqa: PT018 - only eta can be unknown
    missing = graph.add("Or", graph.add("IsNaN", pt), graph.add("IsNaN", phi))
    if eta is not None:
        missing = graph.add("Or", missing, graph.add("IsNaN", eta))
    pt, phi = (graph.add("Where", missing, 0.0, v) for v in (pt, phi))
    size = _length(graph, pt, units[0], factors[0])
    # The cosine as a sine, which older runtimes have in double precision too.
    angles = (graph.add("Add", phi, np.pi / 2), phi)
    xy = [graph.add("Mul", size, graph.add("Sin", angle)) for angle in angles]
    for column, values in zip(columns[[0, 2]], ((0.0, units[0], 5 * units[0]), (-3.0, 0.0, 3.0)), strict=True):
        graph.note(table, int(column), np.array(values))
    if eta is None:
        z = graph.add("Mul", size, 0.0)
    else:
        graph.note(table, int(columns[1]), np.array([-2.5, 0.0, 2.5]))
        eta = graph.add("Clip", graph.add("Where", missing, 0.0, eta), -STEEP, STEEP)
        # sinh, which onnxruntime has in single precision only
        twice = graph.add("Sub", graph.add("Exp", eta), graph.add("Exp", graph.add("Neg", eta)))
        z = _length(graph, graph.add("Mul", pt, graph.add("Mul", twice, 0.5)), units[1], factors[1])
    return _rounded(graph, graph.add("Concat", *xy, z, axis=1))


def _length(graph: Graph, p: str, unit: float, factor: float) -> str:
    size = graph.add("Mul", _compressed(graph, p, np.array([unit])), factor)
    return graph.add("Clip", size, -FAR, FAR)


def _compressed(graph: Graph, x: str, units: Array) -> str:
    """Odd logarithm in some unit; x itself where that is 0."""
    log = units != 0
    if not log.any():
        return x
    size = graph.add("Div", graph.add("Abs", x), np.where(log, units, 1.0))
    odd = graph.add("Mul", graph.add("Sign", x), graph.add("Log", graph.add("Add", size, 1.0)))
    return odd if log.all() else graph.add("Where", log, odd, x)


def _rounded(graph: Graph, x: str) -> str:
    """Round to single precision, as the inputs of a net are."""
    return graph.cast(graph.cast(x, np.float32), np.float64)


def _note_columns(graph: Graph, table: str, inputs: Inputs) -> None:
    """Landmarks: the mean of a column, and what lies two standard deviations from it."""
    for k, column in enumerate(inputs.columns):
        if inputs.factors[k]:
            at = inputs.means[k] + np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / inputs.factors[k]
            unit = inputs.units[k]
            graph.note(table, int(column), at if unit == 0 else np.copysign(np.expm1(np.abs(at)) * unit, at))
