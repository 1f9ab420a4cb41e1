"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fivesigma.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a name beside the target, which is renamed to it when all went well and is on disk.

    Raises
    ------
    InputError
        With the name of the target, if the system refuses to write it: a full disk, a folder that is read-only. What
        was at the target stays as it was, and nothing is left beside it.
    """
    beside = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())  # before the name points to it
        beside.replace(path)
    except BrokenPipeError:
        raise  # of a reader of the output, not of the file
    except OSError as err:
        raise InputError(f"{path} cannot be written: {err.strerror or err}") from err
    except Exception as err:
        # polars wraps what the system said of a Parquet file.
        if "os error" not in str(err):
            raise
        raise InputError(f"{path} cannot be written: {str(err).splitlines()[0]}") from err
    finally:
        beside.unlink(missing_ok=True)
