"""Small files of every format for the tests of the loaders."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

ak = pytest.importorskip("awkward")
uproot = pytest.importorskip("uproot")

CSV = (
    "EventId,mass,pt,Weight,Label,KaggleSet,KaggleWeight\n"
    "7,125.5,30.25,0.1,s,t,1.0\n"
    "8,-999.0,41.0,2.5,b,t,1.0\n"
    "9,91.1,-999.0,1.5,b,v,1.0\n"
    "10,124.9,28.125,0.2,s,v,1.0\n"
)


def frame() -> pl.DataFrame:
    return pl.read_csv(CSV.encode())


def write(path: Path, columns: dict[str, Any] | None = None, tree: str = "events", ntuple: bool = False) -> Path:
    """Write the columns in the format that the name asks for; the standard ones by default."""
    data = frame() if columns is None else pl.DataFrame(columns)
    if path.suffix == ".parquet":
        data.write_parquet(path)
    elif path.suffix == ".root":
        arrays = {s.name: ak.Array(s.to_list()) if s.dtype == pl.String else s.to_numpy() for s in data}
        with uproot.recreate(path) as file:
            if ntuple:
                file.mkrntuple(tree, arrays)
            else:
                file.mktree(tree, {n: "string" if isinstance(a, ak.Array) else a.dtype for n, a in arrays.items()})
                file[tree].extend(arrays)
    else:
        data.write_csv(path)
    return path
