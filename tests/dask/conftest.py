"""A real cluster of processes, shared by the tests that leave it as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.dask.files import write_files

distributed = pytest.importorskip("distributed")
pytest.importorskip("xgboost")


@contextmanager
def local_cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """Workers of one thread, each a process; what they log of their own deaths is not shown."""
    settings = {
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",
        "host": "127.0.0.1",
        "silence_logs": logging.CRITICAL,
    }
    with (
        distributed.LocalCluster(n_workers=n_workers, **(settings | options)) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="package")
def client() -> Iterator[Any]:
    """A cluster of two workers."""
    with local_cluster() as opened:
        yield opened


@pytest.fixture(scope="package")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four files of events."""
    return write_files(tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="package")
def folder(pattern: str) -> Path:
    """Where they are."""
    return Path(pattern).parent
