"""The grown cascade, trained on a Dask cluster."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from fivesigma.cut.binned import RULES_OF_BINS
from fivesigma.cut.rules import RULES
from fivesigma.dask.launch import connect, run_group
from fivesigma.dask.watch import Member, find_workers
from fivesigma.dask.worker import SAMPLE, Job
from fivesigma.datasets.stream import EventStream
from fivesigma.errors import InputError, SmallSampleWarning, is_number
from fivesigma.estimators.grown import GrownCascadeClassifier as Ordinary
from fivesigma.estimators.parameters import whole
from fivesigma.estimators.running import reporting, spread_seeds, with_callbacks
from fivesigma.significance import resolve_utility
from fivesigma.store.checkpoint import Checkpoint

_OWN = ("client", "timeout", "bin_sample")


class GrownCascadeClassifier(Ordinary):
    """Grown cascade whose events are spread over the workers of a Dask cluster.

    Each worker reads its own files and bins them; a tree is grown on all events by XGBoost's collective operations, and
    the yields that u follows are sums over all workers. The bins are those of one sample of the events, the same on
    every worker, so that the model does not depend on the number of workers (docs/guide/scale.md says how closely).

    Once fitted it is used like any other `fivesigma.GrownCascadeClassifier`, and saved as one.

    Parameters
    ----------
    client : distributed.Client or str, optional
        The cluster, or the address of its scheduler; by default the client that was opened last.
    timeout : float, default=300
        Seconds that a worker waits for another. After at most that time a worker that is gone, frozen or out of memory
        is named in an error, and the same call resumes from the checkpoint on the workers that are left.
    bin_sample : int, default=200_000
        Training events that decide the bins, drawn by a hash of file and row.
    **parameters
        As in `fivesigma.GrownCascadeClassifier`, but for these: `library` is XGBoost; `cv` is a fraction; `refit`,
        ``update="cross-fit"`` and ``cut="smooth"`` are not available; `n_jobs` are threads per worker, by default those
        that Dask gave it; `memory` is what workers hold: with ``"all"`` the features until they are binned, so that
        files are read fewer times; `cache` is not used, for files are in the scratch folder of each worker. The
        `checkpoint` is a folder of the client.

    Examples
    --------
    >>> from fivesigma.dask import GrownCascadeClassifier
    >>> model = GrownCascadeClassifier("tcp://scheduler:8786", n_trees=300, random_state=0)
    >>> model.n_trees
    300
    """

    _checks: ClassVar = {**Ordinary._checks, "bin_sample": whole(2)}

    def __init__(
        self, client: Any = None, *, timeout: float = 300.0, bin_sample: int = SAMPLE, **parameters: Any
    ) -> None:
        super().__init__(**parameters)
        self.client = client
        self.timeout = timeout
        self.bin_sample = bin_sample

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*Ordinary._get_param_names(), *_OWN])

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))  # a client cannot be copied

    def _ordinary_parameters(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name not in _OWN}

    def ordinary(self) -> Ordinary:
        """The same model without a cluster, which is what is saved."""
        out = Ordinary(**self._ordinary_parameters())
        out.__dict__.update({name: value for name, value in vars(self).items() if name.endswith("_")})
        return out

    def __fivesigma_check__(self) -> None:
        """Refuse parameters that cannot be used, or not together, or not on a cluster."""
        super().__fivesigma_check__()
        if not is_number(self.timeout) or not self.timeout >= 1:
            raise InputError(f"timeout must be a number of seconds of at least 1, got {self.timeout!r}")
        if self.library != "xgboost":
            raise InputError(
                f"library={self.library!r} cannot train on a cluster: it has no public operation that sums yields over "
                "workers between two trees; use library='xgboost'"
            )
        if self.update == "cross-fit":
            raise InputError(
                "update='cross-fit' cannot be used on a cluster: it needs a booster per fold, each with the bins of "
                "all other folds on every worker; use update='held-out'"
            )
        if not isinstance(self.cv, float) or not 0 < self.cv < 1:
            raise InputError(
                f"a cluster needs a fraction between 0 and 1 as cv, the share of events held out, got {self.cv!r}; "
                "joblib's Dask backend can spread the folds of a pool over a cluster"
            )
        if self.refit:
            raise InputError("refit=True cannot be used on a cluster, where every pass reads all files; leave it out")
        if self.cut in RULES and self.cut not in RULES_OF_BINS:
            raise InputError(f"cut={self.cut!r} needs all events in one place; use {' or '.join(RULES_OF_BINS)}")
        if self.cache is not None:
            raise InputError("cache is a folder of one machine; workers use their own scratch folders: leave it out")

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        process: Any = None,
        groups: Any = None,
        **reading: Any,
    ) -> Self:
        """Train on the events of files or of Dask collections, and tune the cut.

        Parameters
        ----------
        X : EventStream, path, pattern, list or mapping of these; or a Dask DataFrame or Array
            Files that all workers and the client can read: Parquet, ROOT or CSV; or features in the memory of workers.
        y, sample_weight : Dask Series or Array, optional
            Labels and physics weights of a collection; files bring theirs along.
        process, groups : None
            Splits are made by a hash of file and row, and by nothing else.
        **reading
            For paths: how they are read, as in `fivesigma.datasets.EventStream`.

        Returns
        -------
        self
        """
        self.__fivesigma_check__()
        for name, given in (("process", process), ("groups", groups)):
            if given is not None:
                raise InputError(f"{name} is not used on a cluster, where a hash splits the events; leave it out")
        with connect(self.client) as client:
            self._fit_on(client, X, y, sample_weight, reading)
        return self

    @with_callbacks
    def _fit_on(self, client: Any, X: Any, y: Any, sample_weight: Any, reading: dict[str, Any]) -> None:
        members = find_workers(client, self.timeout)
        self.utility_ = resolve_utility(self.utility, self.b_reg)
        split_seed, seed = spread_seeds(self.random_state, 2)
        columns = None
        if isinstance(X, EventStream | str | PathLike | Mapping | list | tuple):
            for name, given in (("y", y), ("sample_weight", sample_weight)):
                if given is not None:
                    raise InputError(f"{name} is given with files, which bring it along; name its column instead")
            if isinstance(X, EventStream) and reading:
                raise InputError(f"{next(iter(reading))} is given with an EventStream, which is read already")
            stream = X if isinstance(X, EventStream) else EventStream(X, **reading)
            if not stream.labelled:
                raise InputError("the events of the files have no labels; name their column with label= or --label")
            shares: list[tuple[Member, Any]] = [
                (member, stream.only(own)) for member, own in zip(members, _spread(stream.sizes, members), strict=True)
            ]
            described: Any = stream.state()
            columns = asdict(stream.columns)
        else:
            from fivesigma.dask.collections import place

            if reading:
                raise InputError(f"{next(iter(reading))} belongs to files, and X is a {type(X).__name__}")
            shares, described = place(client, members, X, y, sample_weight, timeout=self.timeout)
        with Checkpoint.of(self, self._checkpoint_interval(), described, columns) as checkpoint:
            job = Job(
                {**self._ordinary_parameters(), "checkpoint": None, "verbose": 0},
                split_seed,
                seed,
                min(member.threads for member in members) if self.n_jobs is None else self.n_jobs,
                self.bin_sample,
                checkpoint.read() if checkpoint else None,
            )
            trained = self._run(client, job, shares, checkpoint)
        if isinstance(X, EventStream):
            X.counts.update(trained.counts)
        for message in trained.warnings:
            warnings.warn(message, SmallSampleWarning, stacklevel=2)
        self.__dict__.update(trained.fitted)
        if hasattr(self, "columns_"):
            del self.columns_
        if columns is not None:
            self.columns_ = columns

    def _run(self, client: Any, job: Job, shares: list[tuple[Member, Any]], checkpoint: Checkpoint | None) -> Any:
        kept = checkpoint.write if checkpoint else lambda *_: None
        on_interrupt: dict[str, Any] = {"checkpoint": checkpoint, "unit": "tree", "every": self.checkpoint_every}
        with reporting(self, self.n_trees, "trees", job.n_done, **on_interrupt) as report:
            return run_group(client, job, shares, timeout=self.timeout, heard=report, kept=kept)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of (background, signal); of a Dask collection as a Dask Array, computed by its workers.

        Parameters
        ----------
        X : Dask DataFrame or Array, or what an ordinary model takes

        Returns
        -------
        array or Dask Array of shape (n_events, 2)
        """
        from fivesigma.dask.collections import is_collection, probabilities

        return probabilities(self.ordinary(), X) if is_collection(X) else super().predict_proba(X)


def _spread(sizes: Sequence[int], members: Sequence[Member]) -> list[list[int]]:
    """Files of each worker: the largest first, each to the worker with the least to read so far."""
    loads = np.zeros(len(members))
    own: list[list[int]] = [[] for _ in members]
    for at in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        least = int(np.argmin(loads))
        loads[least] += sizes[at]
        own[least].append(at)
    return [sorted(files) for files in own]
