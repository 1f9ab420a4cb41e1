"""Small models and their reports, made once."""

from __future__ import annotations

from typing import Any

import pytest

import fivesigma
from fivesigma.datasets import Events, make_htautau
from fivesigma.reporting import Report

B_REG = 10.0


def grown(events: Events, **options: Any) -> Any:
    settings = {"n_trees": 25, "b_reg": B_REG, "random_state": 0, "n_jobs": 1, "monitor_every": 5}
    model = fivesigma.GrownCascadeClassifier(**settings | options)
    return model.fit(events.X, events.y, events.weight, events.process)


@pytest.fixture(scope="session")
def train() -> Events:
    return make_htautau(12_000, random_state=1)


@pytest.fixture(scope="session")
def test_events() -> Events:
    return make_htautau(12_000, random_state=2)


@pytest.fixture(scope="session")
def cascade(train: Events) -> Any:
    pytest.importorskip("xgboost")
    return grown(train)


@pytest.fixture(scope="session")
def plain_model(train: Events) -> Any:
    pytest.importorskip("xgboost")
    return grown(train, cascade=False)


@pytest.fixture(scope="session")
def made(cascade: Any, plain_model: Any, test_events: Events) -> Report:
    return fivesigma.report(cascade, test_events, baseline=plain_model, n_boot=200)
