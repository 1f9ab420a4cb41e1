"""XGBoost's binned matrices from batches: the features are never in memory all at once.

The bins are in memory (`QuantileDMatrix`) or in files that are read for every tree (`ExtMemQuantileDMatrix`); labels,
weights and margins are in memory in both cases.
"""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray
from fivesigma.errors import InputError
from fivesigma.learners.protocols import Binding, library_names

MEMORY = ("all", "bins", "disk")
_BYTES_PER_CELL = 5  # of the files while they are written; 4.6 were measured


def batched_matrices(binding: Binding, options: dict[str, Any]) -> tuple[Any, Any]:
    """Matrices of the training and of the held-out rows, with the bins of the former."""
    xgboost = need("xgboost")
    names = library_names(binding.X)
    if binding.cache is not None:
        binding.cache.mkdir()
    kind = xgboost.QuantileDMatrix
    if binding.memory == "disk":
        kind = getattr(xgboost, "ExtMemQuantileDMatrix", None)
        if kind is None:
            raise InputError(
                f"memory='disk' needs xgboost 3.0 or newer, and {xgboost.__version__} is installed; use memory='bins'"
            )

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
    """Give a folder for the files of ``memory="disk"``, which is removed in the end, whatever happens.

    Parameters
    ----------
    memory : {"all", "bins", "disk"}
    given : path, optional
        Folder that is to be made; by default one among the system's temporary files.
    shape : (int, int)
        Events and features, by which the room is judged.
    """
    if memory != "disk":
        if given is not None:
            raise InputError(f"cache={str(given)!r} is for memory='disk', and memory is {memory!r}; leave cache out")
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="fivesigma-")) if given is None else Path(given)
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
