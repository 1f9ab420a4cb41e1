"""Dask DataFrames and Arrays: where their partitions are, and what is computed of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray
from fivesigma.cut.best_cut import CutScan, check_rule, scan_binned
from fivesigma.cut.binned import SAMPLE, BinnedRanking, BinSums, read_first
from fivesigma.cut.rules import DEFAULT_RULE
from fivesigma.dask.launch import connect
from fivesigma.dask.share import as_partition
from fivesigma.dask.watch import Member, ask, gather, wait_for
from fivesigma.errors import InputError
from fivesigma.scored.scored_files import Part
from fivesigma.significance import AMS2, Utility, resolve_utility
from fivesigma.yields import check_weights, name_rows, split_labels


def is_collection(value: Any) -> bool:
    """Whether a value is a Dask collection, without importing Dask."""
    return hasattr(value, "__dask_graph__")


def _blocks(value: Any, name: str) -> list[Any]:
    """Partitions of a DataFrame, Series or Array, delayed."""
    if not is_collection(value) or not (hasattr(value, "npartitions")):
        raise InputError(f"{name} must be a Dask DataFrame, Series or Array, got {type(value).__name__}")
    if hasattr(value, "chunks") and value.ndim == 2 and len(value.chunks[1]) > 1:
        value = value.rechunk({1: -1})  # all features of an event in one place
    return list(value.to_delayed().ravel() if hasattr(value, "chunks") else value.to_delayed())


def _aligned(**columns: Any) -> dict[str, list[Any]]:
    """Partitions of several collections, which must be as many of each."""
    blocks = {name: _blocks(value, name) for name, value in columns.items() if value is not None}
    counts = {name: len(found) for name, found in blocks.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"the collections have different numbers of partitions ({counts}); partition all alike")
    return blocks


def place(
    client: Any, members: Sequence[Member], X: Any, y: Any, sample_weight: Any, *, timeout: float
) -> tuple[list[tuple[Member, Any]], Any]:
    """Have the partitions computed and kept where Dask puts them; who has which, and what tells them from others."""
    if y is None:
        raise InputError("a Dask collection of features needs y")
    blocks = _aligned(X=X, y=y, sample_weight=sample_weight)
    n, n_features = len(blocks["X"]), int(X.shape[1])
    named = hasattr(X, "columns")
    names = tuple(map(str, X.columns)) if named else tuple(f"x{k}" for k in range(n_features))
    weights = blocks.get("sample_weight", [None] * n)
    part, addresses = need("dask").delayed(as_partition), [member.address for member in members]
    tasks = [part(k, blocks["X"][k], blocks["y"][k], weights[k]) for k in range(n)]
    futures = client.compute(tasks, workers=addresses)
    wait_for(client, futures, timeout, members)
    for failed in [future for future in futures if future.status != "finished"][:1]:
        gather(client, [failed], timeout)
    holders = ask(timeout, client.who_has, futures)
    own: dict[str, list[Any]] = {address: [] for address in addresses}
    for future in futures:
        held = [address for address in holders.get(future.key, ()) if address in own]
        own[held[0] if held else addresses[0]].append(future)
    shares = [(member, (own[member.address], names, named)) for member in members]
    return shares, ("collection", n, names)


def probabilities(model: Any, X: Any) -> Any:
    """P(background) and P(signal) of a collection, as a Dask Array, partition by partition."""
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        return X.map_blocks(_score, model, dtype=np.float64, chunks=(X.chunks[0], (2,)))
    found = X.map_partitions(_score, model, meta=np.empty((0, 2)))
    return found if hasattr(found, "chunks") else found.to_dask_array()


def _score(block: Any, model: Any) -> AnyArray:
    return np.asarray(model.predict_proba(block)) if len(block) else np.empty((0, 2))


def scan(
    score: Any,
    y: Any,
    sample_weight: Any,
    utility: Utility | str = AMS2(),
    rule: str = DEFAULT_RULE,
    *,
    min_effective: float | None = None,
    pos_label: Any = None,
    client: Any = None,
    timeout: float = 300.0,
) -> CutScan:
    """Scan all cuts on the score of Dask collections, in passes over their partitions, and choose one.

    Parameters
    ----------
    score, y, sample_weight : Dask Array or Series
        As in `fivesigma.scan`, partitioned alike.
    utility, rule, min_effective, pos_label
        As in `fivesigma.scan`; the rule "smooth" needs all events in one place and is refused.
    client : distributed.Client or str, optional
        The cluster, or the address of its scheduler; by default the client that was opened last.
    timeout : float, default=300
        Seconds after which a scheduler that does not answer is given up.

    Returns
    -------
    CutScan
    """
    utility = resolve_utility(utility)
    check_rule(rule, binned=True)
    with connect(client) as opened:
        blocks = _aligned(score=score, y=y, sample_weight=sample_weight)
        delayed = need("dask").delayed
        n = len(blocks["score"])
        raw = opened.compute([delayed(_column)(block) for block in blocks["y"]])
        found = gather(opened, opened.map(np.unique, raw, pure=False), timeout)
        labels = sorted({label for own in found for label in own.tolist()}, key=str)
        signal = split_labels(np.array(labels), pos_label)[1][1]
        weights = blocks["sample_weight"]
        tasks = [delayed(_partition)(k, blocks["score"][k], raw[k], weights[k], signal) for k in range(n)]
        ranking = _ClusterRanking(opened, opened.compute(tasks), timeout)
        return scan_binned(ranking, utility, rule, min_effective)


def _column(values: Any) -> AnyArray:
    return np.asarray(values).reshape(-1)


def _partition(number: int, score: Any, y: AnyArray, weight: Any, signal: Any) -> Part:
    score = _column(score)
    if not score.size == y.size == _column(weight).size:
        raise InputError(f"partition {number} has {score.size} scores and {y.size} labels; partition all alike")
    if score.dtype.kind not in "biuf":
        raise InputError(f"score must be one number per event, got {score.dtype} in partition {number}")
    if score.size and np.isnan(score.min()):
        raise InputError(f"score is NaN in {name_rows(np.isnan(score))} of partition {number}")
    given = check_weights(_column(weight), score.size) if score.size else np.empty(0)
    return score, np.asarray(y == signal, dtype=np.bool_), given


class _ClusterRanking(BinnedRanking):
    """A ranking whose partitions stay with the workers; sums and a few events come to the client."""

    def __init__(self, client: Any, parts: list[Any], timeout: float) -> None:
        self._client, self._futures, self._timeout = client, parts, timeout
        super().__init__(parts)

    def _each(self, work: Any, *given: Any) -> list[Any]:
        tasks = [self._client.submit(work, part, *given, pure=False) for part in self._futures]
        return gather(self._client, tasks, self._timeout)

    def _sample(self) -> tuple[AnyArray, int]:
        found = self._each(_some_scores, -(-SAMPLE // len(self.parts)))
        return np.concatenate([score for score, _ in found]), sum(n for _, n in found)

    def _sum_bins(self) -> BinSums:
        return sum(self._each(BinSums.of, self.bins), BinSums.empty(len(self.bins)))

    def _read_first(self, n_bins: int) -> list[Part]:
        return self._each(read_first, self.bins, n_bins)


def _some_scores(part: Part, most: int) -> tuple[AnyArray, int]:
    return part[0][:: max(1, part[0].size // most)], part[0].size
