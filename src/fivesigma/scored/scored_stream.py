"""Scores of a stream of events, written chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_with_digest
from fivesigma.datasets.stream import EventStream
from fivesigma.scored.scored_events import ScoredEvents, check_ending


class Written(NamedTuple):
    """Numbers of events that were scored, and that the model's cut selects."""

    events: int
    selected: int


def write_scores(model: Any, stream: EventStream, path: str | os.PathLike[str]) -> Written:
    """Score a stream of events and write the file that `ScoredEvents.write` would, chunk by chunk."""
    path = Path(path)
    check_ending(path)
    polars = need("polars")
    counts = [0, 0]

    def frames() -> Iterator[Any]:
        for chunk in stream:
            if not len(chunk.events):
                continue
            scored = ScoredEvents.of(model, chunk.events)
            columns = {
                "id": np.arange(counts[0], counts[0] + len(scored)) if scored.ids is None else scored.ids,
                "score": scored.score,
                "selected": scored.selected,
                "label": chunk.events.y if stream.labelled else None,
                "weight": None if stream.columns.weight is None else scored.weight,
                "process": scored.process,
            }
            counts[0] += len(scored)
            counts[1] += 0 if scored.selected is None else int(scored.selected.sum())
            yield polars.DataFrame({name: column for name, column in columns.items() if column is not None})
        stream.refuse_empty(counts[0])
        if stream.labelled:
            _ = stream.classes  # there must be two
        stream.refuse_repeated_ids()

    with written_with_digest(path) as beside:
        _sink(frames(), beside, csv=path.suffix.lower() == ".csv")
    return Written(*counts)


def _sink(frames: Iterator[Any], path: Path, *, csv: bool) -> None:
    """Write frames one after the other."""
    polars = need("polars")
    first: Any = next(frames)
    failed: list[BaseException] = []

    def source(*_: Any) -> Iterator[Any]:
        yield first
        try:
            yield from (frame.cast(first.schema) for frame in frames)
        except BaseException as err:  # it is raised below
            # Raised here, it would be wrapped, and polars might still write when the file is removed.
            failed.append(err)

    lazy = polars.io.plugins.register_io_source(source, schema=first.schema)
    (lazy.sink_csv if csv else lazy.sink_parquet)(path)
    if failed:
        raise failed[0]
