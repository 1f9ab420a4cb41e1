"""A small net as a scikit-learn classifier that takes weights."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fivesigma._tools.progress import end_if_given_up, step_bar
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.datasets.digest import rows_to_know_again
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, is_number
from fivesigma.estimators.parameters import one_of, whole
from fivesigma.estimators.significance_classifier import signal_and_weight, warn_of_training_events
from fivesigma.learners.net.inputs import (
    Inputs,
    find_columns,
    find_momenta,
    find_named_momenta,
    groups_of_weight,
    turning_column,
)
from fivesigma.significance import Utility, resolve_utility
from fivesigma.store.checkpoint import Checkpoint
from fivesigma.yields import (
    balanced_class_weights,
    check_weights,
    name_rows,
    signal_and_background,
    significance_of,
    split_labels,
)

_STATE = "training"  # name of the file in a checkpoint


@dataclass(repr=False, eq=False)
class NetClassifier(ClassifierMixin, BaseEstimator):
    """A small densely connected net that uses the rotation and mirror symmetries of a collision.

    Each layer sees the inputs and all layers before it. The loss is the weighted cross-entropy, the optimiser Adam with
    decoupled weight decay, its rate follows one cycle. Columns are standardised, those with a heavy tail after a
    logarithm; NaN is missing and seen as such. The same seed and number of threads give the same net.

    With `momenta` the net sees particles as vectors. In training each event is rotated about the beam, mirrored and
    flipped end to end by chance, anew in every epoch; a prediction is the mean over fixed copies.

    Parameters
    ----------
    width, depth : int, default=33 and 6
        Units of a layer, and layers.
    epochs : int, default=15
        Passes over the events.
    batch_size : int, default=1024
        Events of a step.
    learning_rate : float, default=0.01
        Largest rate of the cycle.
    weight_decay : float, default=0.01
        How fast weights decay, in units of the rate.
    dropout : float, default=0.2
        Share of units that a step leaves out.
    weight_groups : int, default=1
        Groups of like weight into which each class is split. The net learns to tell them apart beside the classes, and
        so what the processes look like: simulated events of one process have like weights. 4 helped with 60,000 events
        and did not with 11,000; 1 leaves it out.
    focus : float, default=0.0
        How much more events near the cut count in the last third of the epochs: the weight of an event is up to
        1 + `focus` times as large, the closer its rank is to that of a cut that keeps a third of the signal.
    columns : sequence of str or int, optional
        Columns that are inputs, by name or number; all by default. Momenta are inputs in any case.
    momenta : "auto" or sequence of (pt, eta or None, phi), optional
        Columns of each particle, by name or number; eta is None where only the transverse momentum is known. pt stays
        an input by itself, eta and phi do not. A column that is none of them and turns with the event, such as px, is
        refused. ``"auto"`` finds columns that are named like lep_pt, lep_eta, lep_phi or MET, MET_phi, and takes none
        if another column turns; `notes_` says which.
    names : sequence of str, optional
        Names of the columns for ``momenta="auto"`` where X, as an array, has none.
    n_augment : int, default=8
        Copies of an event in a prediction: 1 or a multiple of four, for then a mirrored event has the same score.
    device : {"cpu", "cuda", "mps", "auto"}, default="cpu"
        Where the net is trained; ``"auto"`` takes the first that is there of cuda, mps and cpu. Scores are computed on
        the CPU, in double precision, so that they do not depend on it.
    checkpoint : path, optional
        Folder to which the training is written after every epoch; the same call resumes from there.
    random_state : int, RandomState or None, default=None
        Seed.
    n_jobs : int, optional
        Threads: one by default, -1 for all cores.
    verbose : int, default=0
        1 shows a progress bar on stderr.

    Attributes
    ----------
    classes_ : array of shape (2,)
        The labels; the second is the one whose log-odds are learnt.
    inputs_ : Inputs
        How columns become inputs.
    weights_ : list of arrays
        Weights and offsets of each layer.
    notes_ : tuple of str
        What ``momenta="auto"`` found.
    loss_ : array of shape (epochs,)
        Mean loss of each epoch.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import NetClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> X = rng.normal(size=(1000, 2)) + 2 * y[:, None]
    >>> net = NetClassifier(width=8, depth=2, batch_size=50, epochs=5, random_state=0, n_jobs=1).fit(X, y)
    >>> bool(net.score(X, y) > 0.9)
    True
    """

    _: KW_ONLY
    width: int = 33
    depth: int = 6
    epochs: int = 15
    batch_size: int = 1024
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    dropout: float = 0.2
    weight_groups: int = 1
    focus: float = 0.0
    columns: Any = None
    momenta: Any = None
    names: Any = None
    n_augment: int = 8
    device: str = "cpu"
    checkpoint: str | os.PathLike[str] | None = None
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NetClassifier:
        """Train the net.

        Parameters
        ----------
        X : Events, or array or frame of shape (n_events, n_features)
            NaN is missing. `Events` bring labels and weights along: each class is then scaled to the same sum.
        y : array-like of shape (n_events,)
            Two labels; needed unless X are `Events`.
        sample_weight : array-like of shape (n_events,), optional
            Weights, not negative; only their ratios matter. One each if not given.

        Returns
        -------
        self
        """
        self.__fivesigma_check__()
        names = None
        if isinstance(X, Events):
            y = X.is_signal.astype(np.intp) if y is None else y
            if sample_weight is None:
                factors = balanced_class_weights(X.weight, X.is_signal)
                sample_weight = np.where(X.is_signal, *factors) * X.weight
            names, X = X.feature_names, X.X
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        check_classification_targets(y)
        signal, self.classes_ = split_labels(y, np.unique(y)[-1])
        target = signal.astype(np.intp)
        weight = _mean_one(sample_weight, target)
        names = getattr(self, "feature_names_in_", None)
        table = (self.n_features_in_, None if names is None else names.tolist())
        columns = find_columns(self.columns, *table)
        if isinstance(self.momenta, str):
            told = table[1] if self.names is None else list(self.names)
            if told is not None and len(told) != self.n_features_in_:
                raise InputError(f"names has {len(told)} entries for {self.n_features_in_} columns")
            named = find_named_momenta(told, X)
            momenta, self.notes_ = find_momenta(named.momenta, *table), (named.note,)
        else:
            momenta = find_momenta(self.momenta, *table)
            turning = turning_column(X, momenta, columns)
            if turning is not None:
                name = turning if names is None else repr(str(names[turning]))
                raise InputError(
                    f"column {name} turns with the event and is part of no momentum, so that turned events would be "
                    "wrong; leave it out with columns=, or give no momenta"
                )
        with Checkpoint.of(self, 1, X, target, weight) as checkpoint:
            self._train(X, target, weight, momenta, columns, checkpoint)
        self.training_rows_ = rows_to_know_again(X)
        return self

    def _train(  # noqa: PLR0917 - what `fit` has checked
        self,
        X: Array,
        target: IntArray,
        weight: Array,
        momenta: IntArray,
        columns: IntArray | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        # torch is imported where it is used, so that the class itself can be looked at without it.
        from fivesigma.learners.net.model import NetTraining, limited_threads

        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with limited_threads(self.n_jobs), step_bar(self.epochs, "net", visible=bool(self.verbose)) as advance:
            self.inputs_ = Inputs.learn(X, weight, momenta, columns)
            inputs = (self.inputs_.scalars(X), self.inputs_.vectors(X))
            groups = groups_of_weight(target, weight, self.weight_groups)
            labels = (target.astype(np.float32), weight.astype(np.float32))
            training = NetTraining(self, seed, *inputs, *labels, group=groups)
            if checkpoint and (saved := checkpoint.read()):
                with checkpoint.resuming():
                    training.restore(saved[1][_STATE])
                for loss in training.losses:
                    advance(f"loss {loss:.4f}")
            try:
                while len(training.losses) < self.epochs:
                    end_if_given_up()
                    advance(f"loss {training.run_epoch():.4f}")
                    if checkpoint:
                        checkpoint.write({}, {_STATE: training.dump()})
            except KeyboardInterrupt:
                if checkpoint:
                    checkpoint.say_interrupted(len(training.losses), len(training.losses), "epoch")
                raise
        self.weights_, self.loss_ = training.weights(), np.array(training.losses)

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second class.

        Parameters
        ----------
        X : array or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events,)
        """
        from fivesigma.learners.net.model import limited_threads, net_log_odds

        check_is_fitted(self)
        options = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        if isinstance(X, Events):  # whose columns are found by name
            X = check_array(X.table(getattr(self, "feature_names_in_", X.feature_names)), **options)
        else:
            X = validate_data(self, X, reset=False, **options)
        with limited_threads(self.n_jobs):
            return net_log_odds(self.weights_, self.inputs_.scalars(X), self.inputs_.vectors(X), self.n_augment)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes at the weights of training.

        Parameters
        ----------
        X : array or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events, 2)
        """
        margin = self.decision_function(X)
        return np.column_stack([expit(-margin), expit(margin)])

    def predict(self, X: Any) -> AnyArray:
        """Labels of the larger probability.

        Parameters
        ----------
        X : array or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events,)
        """
        margin = self.decision_function(X)
        return self.classes_[(margin > 0).astype(np.intp)]

    def significance(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        yields: tuple[float, float] | None = None,
        *,
        utility: str | Utility = "ams2",
    ) -> float:
        """Significance of the events that `predict` selects; a warning says where the net was trained on them.

        The net has no tuned cut: ``CascadeClassifier(NetClassifier(), cascade=False)`` has one.

        Parameters
        ----------
        X : Events, or array or frame of shape (n_events, n_features)
        y, sample_weight : array-like of shape (n_events,)
            Labels and physics weights, unless X are `Events`.
        yields : (float, float), optional
            Expected signal and background events that the weights are scaled to, class by class.
        utility : str or Utility, default="ams2"
            What is measured.

        Returns
        -------
        float
        """
        warn_of_training_events(self, X)
        selected = self.decision_function(X) > 0
        if isinstance(X, Events):
            y, sample_weight = X.is_signal if y is None else y, X.weight if sample_weight is None else sample_weight
        signal, weight = signal_and_weight(self, X, y, sample_weight, yields)
        return significance_of(resolve_utility(utility), *signal_and_background(weight, signal, selected))

    def __fivesigma_check__(self) -> None:
        """Refuse parameters that no net can have."""
        one_of(("auto", "cpu", "cuda", "mps"))("device", self.device)
        if isinstance(self.momenta, str) and self.momenta != "auto":
            raise InputError(f"momenta must be 'auto' or triples of columns, got {self.momenta!r}")
        for name in ("width", "depth", "epochs", "batch_size", "weight_groups", "n_augment"):
            whole(1)(name, getattr(self, name))
        if self.n_augment != 1 and self.n_augment % 4:
            raise InputError(f"n_augment must be 1 or a multiple of 4, got {self.n_augment!r}")
        rates = (("learning_rate", 0, np.inf), ("weight_decay", 0, np.inf), ("focus", 0, np.inf), ("dropout", 0, 1))
        for name, low, high in rates:
            value = getattr(self, name)
            if not is_number(value) or not low <= value < high or (name == "learning_rate" and value == 0):
                bound = "positive" if name == "learning_rate" else f"at least 0 and less than {high:g}"
                raise InputError(f"{name} must be a number, {bound}, got {value!r}")


def _mean_one(sample_weight: Any, target: AnyArray) -> Array:
    if sample_weight is None:
        return np.ones(target.size)
    weight = check_weights(sample_weight, target.size)
    if (weight < 0).any():
        raise InputError(f"sample_weight is negative in {name_rows(weight < 0)}; a net takes no negative weights")
    for k in range(2):
        if not weight[target == k].any():
            raise InputError("every sample_weight of one class is zero; both classes are needed")
    return np.asarray(weight / weight.mean())
