"""XGBoost: the matrix is binned once, and only weights change.

Bins are those of the unweighted events: they describe where events lie, the weights say what is asked of them, so
models at different class weights differ in nothing else. Where the features are not in memory all at once, matrices are
made from batches, with their bins in memory or in files that are read for every tree.
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import temporary_folder
from fivesigma._tools.threads import note_threads
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.errors import InputError
from fivesigma.learners.protocols import Binding, Library, is_categorical, library_names
from fivesigma.learners.sklearn import seeded

MEMORY = ("all", "bins", "disk")
_BYTES_PER_CELL = 5  # of the files while they are written; 4.6 were measured


@dataclass(frozen=True)
class XGBoostModel:
    """A trained booster with logistic output."""

    booster: Any
    missing: float = np.nan
    categorical: bool = False
    n_trees: int = 0  # that count; 0 for all (a booster that is cut to its first trees forgets its categories)

    @property
    def kept(self) -> Any:
        """The booster with the trees that count, and no others."""
        return self.booster[: self.n_trees] if self.n_trees else self.booster

    def signal_probability(self, X: Any) -> Array:
        """P(signal)."""
        note_threads(1)
        trees = (0, self.n_trees)
        if type(X).__module__.startswith("polars.") and not self.categorical:
            X = X.to_numpy()  # XGBoost reads such frames by pyarrow, which may not be there
        if isinstance(X, np.ndarray):
            p = self.booster.inplace_predict(X, iteration_range=trees, missing=self.missing, validate_features=False)
        else:
            options = {"missing": self.missing, "enable_categorical": self.categorical}
            table = need("xgboost").DMatrix(X, feature_names=library_names(X), **options)
            p = self.booster.predict(table, iteration_range=trees, validate_features=False)
        return np.asarray(p, dtype=np.float64)

    def gains(self, n_features: int) -> Array:
        """Total gain of each feature."""
        names = self.booster.feature_names or [f"f{k}" for k in range(n_features)]
        by_name = self.kept.get_score(importance_type="total_gain")
        return np.array([by_name.get(name, 0.0) for name in names])


def _can_bin_once(estimator: Any) -> bool:
    """Whether an estimator is an XGBClassifier that trains on a binned matrix."""
    xgboost = need("xgboost")
    return (
        type(estimator) is xgboost.XGBClassifier
        and estimator.booster in (None, "gbtree", "dart")
        and estimator.tree_method in (None, "auto", "hist")
        and estimator.objective in (None, "binary:logistic")
        and estimator.feature_weights is None
        and not estimator.callbacks
    )


def _binned(binding: Binding, rows: IntArray, **options: Any) -> Any:
    """Matrix of some rows with their labels, binned."""
    X, label, names = binding.rows(rows), binding.target[rows], library_names(binding.X)
    return need("xgboost").QuantileDMatrix(X, label=label, feature_names=names, **options)


class XGBoostTrainer:
    """Trains boosters on one binned matrix."""

    def __init__(self, estimator: Any, binding: Binding) -> None:
        settings = seeded(estimator, binding.seed, binding.n_threads)
        threads = settings.n_jobs or binding.n_threads
        self._params = {**settings.get_xgb_params(), "objective": "binary:logistic", "nthread": threads}
        self._rounds = settings.get_num_boosting_rounds()
        options = {
            "missing": settings.missing,
            "enable_categorical": settings.enable_categorical,
            "feature_types": settings.feature_types,
            "nthread": threads,
        }
        bins = {} if settings.max_bin is None else {"max_bin": settings.max_bin}
        self._train = _binned(binding, binding.train, **options, **bins)
        self._missing, self._categorical = settings.missing, bool(settings.enable_categorical)

    def set_target(self, target: Array) -> None:
        """Set other labels of the training rows, which may be between 0 and 1."""
        self._train.set_label(target)

    def fit(self, weight: Array) -> XGBoostModel:
        """Train a new booster."""
        self._train.set_weight(weight)
        booster = need("xgboost").train(self._params, self._train, num_boost_round=self._rounds)
        return XGBoostModel(booster, self._missing, self._categorical)


# In XGBoost's configuration, and no parameters.
_STATE = frozenset(("name", "num_feature", "num_target", "specified_updater", "updater_seq"))


def _parameters() -> Iterator[str]:
    """The configuration of a booster holds every parameter under each of its names."""
    xgboost = need("xgboost")
    table = xgboost.DMatrix(np.zeros((1, 1)), label=[0.0])
    booster = xgboost.Booster({"objective": "binary:logistic", "tree_method": "hist"}, cache=[table])
    yield "verbosity"  # of the whole library, so that no booster has it
    yield from _leaves(json.loads(booster.save_config()))


def _leaves(node: Any) -> Iterator[str]:
    for name, value in node.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from _leaves(inner)
        if not isinstance(value, dict | list) and name not in _STATE:
            yield name


def _dump(model: XGBoostModel, add_file: Callable[[bytes, str], str]) -> dict[str, Any]:
    return {
        "file": add_file(bytes(model.booster.save_raw("ubj")), ".ubj"),
        "missing": float(model.missing),
        "categorical": model.categorical,
        "n_trees": model.n_trees,
    }


def _load(take: Callable[[str, Any], Any], read: Callable[[str], bytes]) -> XGBoostModel:
    booster = need("xgboost").Booster(model_file=bytearray(read(take("file", str))))
    note_threads(0)  # it will score with all
    n_trees, most = take("n_trees", int), booster.num_boosted_rounds()
    if not 0 <= n_trees <= most:
        raise InputError(f"n_trees is {n_trees}, and the booster has {most}")
    return XGBoostModel(booster, take("missing", (float, int)), take("categorical", bool), n_trees)


def batched_matrices(binding: Binding, options: dict[str, Any]) -> tuple[Any, Any]:
    """Matrices of the training and of the held-out rows, with the bins of the former."""
    xgboost = need("xgboost")
    names = library_names(binding.X)
    if binding.cache is not None:
        binding.cache.mkdir()
    kind = xgboost.ExtMemQuantileDMatrix if binding.memory == "disk" else xgboost.QuantileDMatrix

    def matrix(name: str, rows: Any, ref: Any) -> Any:
        prefix = None if binding.cache is None else str(binding.cache / name)
        batches = _iterator(xgboost, binding.batches(rows), names, prefix)
        try:
            return kind(batches, ref=ref, **options)
        except (xgboost.core.XGBoostError, OSError) as err:
            if binding.cache is not None and shutil.disk_usage(binding.cache).free < 1 << 24:
                raise InputError(f"the disk of the cache {binding.cache} is full; choose another folder") from err
            raise

    bins = None
    if binding.bins is not None:
        bins = xgboost.QuantileDMatrix(binding.bins, feature_names=names, **options)
    train = matrix("train", binding.train, bins)
    return train, matrix("held-out", binding.held_out, train)


def _iterator(
    xgboost: Any, batches: Callable[[], Iterator[tuple[Any, AnyArray]]], names: list[str] | None, prefix: str | None
) -> Any:
    class Batches(xgboost.DataIter):  # made here, because the library is imported only when it is needed
        """What XGBoost calls for the next batch, and to begin again."""

        def __init__(self) -> None:
            super().__init__(cache_prefix=prefix, release_data=True)
            self._left = batches()

        def next(self, input_data: Callable[..., Any]) -> bool:
            for X, target in self._left:
                input_data(data=X, label=target.astype(np.float32), feature_names=names)
                return True
            return False

        def reset(self) -> None:
            self._left = batches()

    return Batches()


def _check_room(folder: Path, shape: tuple[int, int]) -> None:
    wanted, free = _BYTES_PER_CELL * shape[0] * shape[1], shutil.disk_usage(folder).free
    if free < wanted:
        raise InputError(
            f"the cache of {shape[0]:,} events needs {wanted / 1e6:,.0f} MB, and {folder.parent} has "
            f"{free / 1e6:,.0f} MB left; choose another folder with cache= or --cache"
        )


@contextmanager
def cache_folder(memory: str, given: Any, shape: tuple[int, int]) -> Iterator[Path | None]:
    """Give a folder for the files of ``memory="disk"``, which is removed in the end, whatever happens."""
    if memory != "disk":
        yield None
        return
    folder = temporary_folder("fivesigma") if given is None else Path(given)
    if given is not None:
        try:
            folder.mkdir()
        except FileExistsError as err:
            raise InputError(
                f"the cache folder {folder} exists already, and another run may use it; choose another or remove it"
            ) from err
        except OSError as err:
            raise InputError(f"the cache folder {folder} cannot be made: {err.strerror or err}") from err
    try:
        _check_room(folder, shape)
        yield folder
    except BaseException as err:
        traceback.clear_frames(err.__traceback__)  # they hold matrices, which would miss their files later
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# A fixed starting score, so that models at different class weights start alike.
GROWER_DEFAULTS = {"learning_rate": 0.05, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8}
GROWER_FIXED = {
    "objective": "binary:logistic",
    "base_score": 0.5,
    "booster": "gbtree",
    "tree_method": "hist",
    "validate_parameters": True,  # XGBoost then warns of names that it does not know
}


class XGBoostGrower:
    """Grows one booster on one binned matrix."""

    def __init__(self, params: dict[str, Any], binding: Binding) -> None:
        self._params = {**GROWER_DEFAULTS, **params, **GROWER_FIXED, "nthread": binding.n_threads}
        self._categorical = is_categorical(binding.X)
        bins = {"max_bin": self._params["max_bin"]} if "max_bin" in self._params else {}
        options = {"nthread": binding.n_threads, "enable_categorical": self._categorical, **bins}
        if binding.memory == "all":
            self._train = _binned(binding, binding.train, **options)
            self._held = _binned(binding, binding.held_out, ref=self._train, **options)
        else:
            self._train, self._held = batched_matrices(binding, options)
        self.start(binding.seed)

    def start(self, seed: int, dumped: bytes | None = None) -> None:
        """Begin with no trees or with dumped ones; it seeds the random numbers of the thread that calls it."""
        self._booster = need("xgboost").Booster(
            {**self._params, "seed": seed},
            cache=[self._train, self._held],
            model_file=None if dumped is None else bytearray(dumped),
        )
        self._n_trees = self._booster.num_boosted_rounds()

    def set_weights(self, weight: Array) -> None:
        """Set the learner weights of the training rows."""
        self._train.set_weight(weight)

    def grow(self) -> None:
        """Add a tree."""
        self._booster.update(self._train, self._n_trees)
        self._n_trees += 1

    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows."""
        return np.asarray(self._booster.predict(self._held if held_out else self._train))

    def model(self, n_trees: int) -> XGBoostModel:
        """Return the first trees as a model."""
        booster = self._booster.copy()  # without the caches that training filled
        return XGBoostModel(booster, categorical=self._categorical, n_trees=0 if n_trees == self._n_trees else n_trees)

    def dump(self) -> bytes:
        """Return the trees as UBJSON."""
        return bytes(self._booster.save_raw("ubj"))

    def restore(self, dumped: bytes, seed: int) -> int:
        """Resume from dumped trees; return how many there are."""
        self.start(seed, dumped)
        return int(self._n_trees)


LIBRARY = Library(
    name="xgboost",
    grower=XGBoostGrower,
    model=XGBoostModel,
    can_bin_once=_can_bin_once,
    trainer=XGBoostTrainer,
    learners=("XGBClassifier", "XGBRegressor"),
    settings={"enable_categorical": True},
    gamma=lambda depth: {"objective": "reg:gamma", "max_depth": depth},
    parameters=_parameters,
    dump=_dump,
    load=_load,
    defaults=GROWER_DEFAULTS,
    aliases={"eta": "learning_rate"},
    dump_learner=lambda estimator: bytes(estimator.get_booster().save_raw("ubj")),
    load_learner=lambda estimator, content: estimator.load_model(bytearray(content)),
    ending=".ubj",
    memory=MEMORY,
)
