"""LightGBM: the data set is binned once, and only weights change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.special import expit

from fivesigma._tools.extras import need
from fivesigma._tools.threads import available_cores, note_threads
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.learners.protocols import Binding, Library, library_names
from fivesigma.learners.sklearn import seeded

_SEPARATOR = "\n=== next booster ===\n"
# What LGBMClassifier keeps for itself; all else is an alias of one of LightGBM's own parameters.
_NOT_FOR_TRAINING = ("class_weight", "importance_type", "n_estimators", "objective")


@dataclass(frozen=True)
class LightGBMModel:
    """Trained boosters whose margins add up, with logistic output; more than one after a resumed run."""

    boosters: tuple[Any, ...]
    n_threads: int = 0

    def signal_probability(self, X: Any) -> Array:
        """P(signal)."""
        return np.asarray(expit(raw_margin(self.boosters, _plain(X), self.n_threads)))

    def gains(self, n_features: int) -> Array:
        """Total gain of each feature."""
        total = np.zeros(n_features)
        for booster in self.boosters:
            total += booster.feature_importance("gain")
        return total


def raw_margin(boosters: tuple[Any, ...], X: Any, n_threads: int) -> Array:
    """Sum of the boosters' margins."""
    margin = np.zeros(X.shape[0])
    for booster in boosters:
        margin += booster.predict(X, raw_score=True, num_threads=note_threads(n_threads))
    return margin


def _plain(X: Any) -> Any:
    """A table that LightGBM does not know, as one that it does."""
    if issparse(X):
        return csr_matrix(X)
    known = isinstance(X, np.ndarray) or type(X).__module__.partition(".")[0] == "pandas"
    return X if known else np.asarray(X)


def _can_bin_once(estimator: Any) -> bool:
    """Whether an estimator is an LGBMClassifier with logistic loss."""
    return type(estimator) is need("lightgbm").LGBMClassifier and estimator.objective in (None, "binary")


def set_weights(dataset: Any, weight: Array) -> None:
    """Replace the weights of a data set; `set_weight` would drop weights that are all one and keep the old ones."""
    dataset.set_field("weight", weight.astype(np.float32))


def _data_set(binding: Binding, params: dict[str, Any]) -> Any:
    """Training rows, binned when they are first used."""
    X, names = _plain(binding.rows(binding.train)), library_names(binding.X) or "auto"
    label = binding.target[binding.train]
    return need("lightgbm").Dataset(X, label=label, feature_name=names, params=params, free_raw_data=False)


class LightGBMTrainer:
    """Trains boosters on one binned data set."""

    def __init__(self, estimator: Any, binding: Binding) -> None:
        settings = seeded(estimator, binding.seed, binding.n_threads)
        given = {k: v for k, v in settings.get_params().items() if k not in _NOT_FOR_TRAINING and v is not None}
        self._params = {"verbosity": -1, "n_jobs": binding.n_threads, **given, "objective": "binary"}
        self._rounds, self._threads = settings.n_estimators, binding.n_threads
        self._train = _data_set(binding, self._params).construct()

    def fit(self, weight: Array) -> LightGBMModel:
        """Train a new booster."""
        set_weights(self._train, weight)
        booster = need("lightgbm").train(dict(self._params), self._train, num_boost_round=self._rounds)
        return LightGBMModel((booster,), self._threads)


# Parameters that reach other machines or files, by the names that LightGBM's table of aliases has them under.
_ELSEWHERE = (
    *("config", "task", "data", "valid", "input_model", "output_model", "output_result", "save_binary"),
    *("forcedsplits_filename", "forcedbins_filename", "initscore_filename", "parser_config_file", "convert_model"),
    *("machines", "machine_list_filename", "num_machines", "local_listen_port", "time_out", "tree_learner"),
    *("pre_partition", "two_round", "snapshot_freq"),
)


def _parameters() -> Iterator[str]:
    # LightGBM's table of aliases is not public in Python.
    table = getattr(getattr(need("lightgbm").basic, "_ConfigAliases", None), "_get_all_param_aliases", dict)
    for name, others in table().items():
        if name not in _ELSEWHERE:
            yield from (name, *others)


def _dump(model: LightGBMModel, add_file: Callable[[bytes, str], str]) -> dict[str, Any]:
    files = [add_file(booster.model_to_string().encode(), ".txt") for booster in model.boosters]
    return {"files": files, "n_threads": model.n_threads}


def _load(take: Callable[[str, Any], Any], read: Callable[[str], bytes]) -> LightGBMModel:
    texts = [read(name).decode() for name in take("files", list)]
    if not texts:
        raise InputError("it names no booster")
    boosters = tuple(need("lightgbm").Booster(model_str=text) for text in texts)
    return LightGBMModel(boosters, max(1, min(take("n_threads", int), available_cores())))


# A fixed starting score, so that models at different class weights start alike.
GROWER_DEFAULTS = {
    "learning_rate": 0.05,
    "num_leaves": 63,
    "max_depth": 6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.8,
}
GROWER_FIXED = {
    "objective": "binary",
    "boost_from_average": False,
    "metric": "None",
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
}
_OTHER_NAMES = {
    "learning_rate": "eta shrinkage_rate",
    "num_leaves": "num_leaf max_leaves max_leaf max_leaf_nodes",
    "bagging_fraction": "sub_row subsample bagging",
    "bagging_freq": "subsample_freq",
    "feature_fraction": "sub_feature colsample_bytree",
}


class LightGBMGrower:
    """Grows boosters on one binned data set; a new one takes over where trees are restored."""

    def __init__(self, params: dict[str, Any], binding: Binding) -> None:
        self._params = {**GROWER_DEFAULTS, **params, **GROWER_FIXED, "num_threads": binding.n_threads}
        self._threads = binding.n_threads
        self._train = _data_set(binding, self._params)
        self._held = self._train.create_valid(
            _plain(binding.rows(binding.held_out)), label=binding.target[binding.held_out]
        )
        # Without weights from the start the objective would never look for any.
        set_weights(self._train.construct(), np.ones(binding.train.size))
        self._finished: tuple[Any, ...] = ()
        self._trees_after: list[int] = []  # round by round: LightGBM adds no tree where it finds no split
        self._start(binding.seed)

    def _start(self, seed: int) -> None:
        self._booster = need("lightgbm").Booster({**self._params, "seed": seed}, self._train)
        self._booster.add_valid(self._held, "held-out")

    def set_weights(self, weight: Array) -> None:
        """Set the learner weights of the training rows."""
        set_weights(self._train, weight)

    def grow(self) -> None:
        """Add a tree."""
        self._booster.update()
        self._trees_after.append(sum(b.current_iteration() for b in (*self._finished, self._booster)))

    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows: LightGBM hands them to a metric and to nobody else."""
        seen: list[Array] = []

        def metric(p: Array, _: Any) -> tuple[str, float, bool]:
            seen.append(p)
            return "", 0.0, True

        (self._booster.eval_valid if held_out else self._booster.eval_train)(metric)
        return seen[0]

    def model(self, n_trees: int) -> LightGBMModel:
        """Return the first trees as a model."""
        lightgbm = need("lightgbm")
        kept, n_trees = [], self._trees_after[n_trees - 1]
        for booster in (*self._finished, self._booster):
            n = min(n_trees, booster.current_iteration())
            if n:
                kept.append(lightgbm.Booster(model_str=booster.model_to_string(num_iteration=n)))
            n_trees -= n
        return LightGBMModel(tuple(kept), self._threads)

    def dump(self) -> bytes:
        """Return the trees as LightGBM's text, one booster after the other."""
        return _SEPARATOR.join(b.model_to_string() for b in (*self._finished, self._booster)).encode()

    def restore(self, dumped: bytes, seed: int) -> int:
        """Resume from dumped trees, whose margins are where a new booster starts; return how many there are."""
        lightgbm = need("lightgbm")
        self._finished = tuple(lightgbm.Booster(model_str=text) for text in dumped.decode().split(_SEPARATOR))
        if not self._trees_after:
            self._trees_after = list(range(1, 1 + sum(b.current_iteration() for b in self._finished)))
        for dataset in (self._train, self._held):
            margin = raw_margin(self._finished, dataset.construct().get_data(), self._threads)
            dataset.set_field("init_score", margin)
        self._start(seed)
        return sum(b.current_iteration() for b in self._finished)


LIBRARY = Library(
    name="lightgbm",
    grower=LightGBMGrower,
    model=LightGBMModel,
    can_bin_once=_can_bin_once,
    trainer=LightGBMTrainer,
    learners=("LGBMClassifier", "LGBMRegressor"),
    settings={"verbosity": -1},
    gamma=lambda depth: {"objective": "gamma", "num_leaves": 2**depth - 1},
    parameters=_parameters,
    dump=_dump,
    load=_load,
    defaults=GROWER_DEFAULTS,
    aliases={other: name for name, others in _OTHER_NAMES.items() for other in others.split()},
    refused=dict.fromkeys(_ELSEWHERE, "it reaches files or other machines"),
    always_grows=False,
)
