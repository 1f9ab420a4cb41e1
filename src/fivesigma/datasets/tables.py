"""CSV and Parquet files, read by polars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray
from fivesigma.datasets.columns import NEVER_FEATURES, Kind, matches
from fivesigma.errors import InputError, shortened

if TYPE_CHECKING:
    from polars import Expr, LazyFrame, Series


# Rows that decide whether a CSV column holds numbers.
_SAMPLE = 100


class _Table:
    """What the two formats share: a lazy frame with some columns cast, collected and handed over."""

    _options: ClassVar[dict[str, bool]] = {}  # of polars' optimiser

    def __init__(self, path: Path) -> None:
        self.polars = pl = need("polars")
        self._flags = pl.QueryOptFlags(**self._options)
        self._types = {"float32": pl.Float32, "float64": pl.Float64}
        self._texts = (pl.String, pl.Categorical, pl.Enum)
        self.path = path
        self.name = path.name
        if path.stat().st_size == 0:
            raise InputError(f"{self.name} is empty")
        with self._reading():
            columns = dict(self._scan({}).collect_schema())
        leaves = [leaf for name, kind in columns.items() for leaf in self._leaves(name, kind, self.polars.col(name))]
        self.schema: dict[str, Any] = {name: kind for name, kind, _ in leaves}
        self._select = {name: column for name, _, column in leaves}
        self.names = tuple(self.schema)

    def _leaves(self, name: str, kind: Any, column: Expr) -> Iterator[tuple[str, Any, Expr]]:
        """A column by its name; of records, as coffea writes them, each field under a name such as ``Jet.pt``."""
        pl = self.polars
        if isinstance(kind, pl.Struct):
            for field in kind.fields:
                yield from self._leaves(f"{name}.{field.name}", field.dtype, column.struct.field(field.name))
        elif isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct):
            for field in kind.inner.fields:
                inner = column.list.eval(pl.element().struct.field(field.name))
                yield from self._leaves(f"{name}.{field.name}", pl.List(field.dtype), inner)
        else:
            yield name, kind, column.alias(name)

    def _scan(self, kinds: Mapping[str, Kind]) -> LazyFrame:
        raise NotImplementedError

    def read(self, kinds: Mapping[str, Kind], first: int = 0, rows: int | None = None) -> dict[str, AnyArray]:
        """Read columns of all or of some rows as arrays, releasing polars' copy of each as it goes."""
        # What has several values per event is read as it is, and refused by whoever needs one.
        kinds = {name: "raw" if self.schema[name].is_nested() else kind for name, kind in kinds.items()}
        wanted = [
            self._select[name].cast(self._types[kind]) if kind in self._types else self._select[name]
            for name, kind in kinds.items()
        ]
        try:
            with self._reading():
                lazy = self._scan(kinds) if rows is None else self._scan(kinds).slice(first, rows)
                frame = lazy.select(wanted).collect(engine="streaming", optimizations=self._flags)
        except InputError as err:
            self._find_text(kinds)
            for name in (name for name, kind in kinds.items() if kind in self._types):
                if not (self.schema[name].is_numeric() or self.schema[name] in (self.polars.Boolean, *self._texts)):
                    raise InputError(
                        f"column {name!r} of {self.name} holds values of the type {self.schema[name]}, which are not "
                        "numbers; leave the column out"
                    ) from err
            raise
        arrays: dict[str, AnyArray] = {}
        # From the end, where a list gives up its items at once; looking each up by name would be quadratic.
        columns = frame.get_columns()
        del frame
        for name, kind in reversed(list(kinds.items())):
            series = columns.pop()
            read = {"value": self._values, "raw": self._raw}.get(kind, self.polars.Series.to_numpy)
            arrays[name] = read(series)
        return arrays

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Read the columns at once: what is not wanted is dropped by polars as it reads."""
        yield self.read(kinds)

    def _raw(self, series: Series) -> Any:
        """Numbers in their own type (floats with NaN where cells are empty), truth, text, or several per event."""
        if isinstance(series.dtype, self.polars.List):
            return self._jagged(series)
        if series.dtype.is_numeric() and series.dtype not in (self.polars.Int128, self.polars.UInt128):
            return np.asarray(series.to_numpy())
        return self._values(series)

    def _jagged(self, series: Series) -> Any:
        """Lists as awkward has them; a list that is missing is empty."""
        awkward, lengths = need("awkward"), series.list.len().fill_null(0)
        inside = series.filter(lengths > 0).explode()
        text = inside.dtype == self.polars.String
        return awkward.unflatten(awkward.Array(inside.to_list()) if text else self._raw(inside), lengths.to_numpy())

    def _values(self, series: Series) -> AnyArray:
        """Values in their own type; None where a cell is empty, NaN among floats."""
        pl = self.polars
        wide = series.dtype in (pl.Int128, pl.UInt128)  # which NumPy does not have
        if wide or (series.null_count() and not series.dtype.is_float()):
            return np.array(series.to_list(), dtype=object)
        if series.dtype not in self._texts or series.is_empty():
            return np.asarray(series.to_numpy())
        series = series.cast(pl.String)
        words = series.unique()
        if len(words) > 1000:
            return np.array(series.to_list(), dtype=str)
        codes = series.replace_strict(words, range(len(words)), return_dtype=pl.UInt32)
        return np.take(np.array(words.to_list(), dtype=str), codes.to_numpy())

    def _find_text(self, kinds: Mapping[str, Kind]) -> None:
        """After a failed read, say which cell of which number column is not a number."""
        pl = self.polars
        numbers = [name for name, kind in kinds.items() if kind in self._types]
        with self._reading():
            scanned = self._scan(dict.fromkeys(kinds, "value")).select(self._select[name] for name in kinds)
            schema = scanned.collect_schema()
            texts = [name for name in numbers if schema[name] in self._texts]
            words = {name: pl.col(name).cast(pl.String) for name in texts}
            bad = {name: w.is_not_null() & w.cast(pl.Float64, strict=False).is_null() for name, w in words.items()}
            cells = (words[name].get(b.arg_max()).alias(name) for name, b in bad.items())
            rows = (pl.when(b.any()).then(b.arg_max()).alias(f"row of {name}") for name, b in bad.items())
            found = scanned.select(*cells, *rows).collect(optimizations=self._flags).to_dicts() if texts else [{}]
        for name in texts:
            if (row := found[0][f"row of {name}"]) is not None:
                raise InputError(
                    f"column {name!r} should hold numbers, but row {row + 1:,} of {self.name} has "
                    f"{shortened(repr(found[0][name]))}: correct it, or leave the column out"
                )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what polars raises for a damaged file into one sentence."""
        errors = self.polars.exceptions
        try:
            yield
        except errors.NoDataError as err:
            raise InputError(f"{self.name} is empty") from err
        except errors.PanicException as err:
            raise InputError(f"cannot read {self.name}: polars gave up on it; the file may be damaged") from err
        except (errors.PolarsError, OSError, UnicodeError, OverflowError) as err:
            why = str(err).strip().splitlines()[0].rstrip(".") if str(err).strip() else type(err).__name__
            why = shortened(why, 200)
            raise InputError(f"cannot read {self.name}: {why}; the file may be damaged or truncated") from err


class ParquetFile(_Table):
    """A Parquet file; its columns have types."""

    def _scan(self, kinds: Mapping[str, Kind]) -> LazyFrame:  # noqa: ARG002 - the file knows its types
        lazy: LazyFrame = self.polars.scan_parquet(self.path, glob=False)
        return lazy

    @cached_property
    def n_rows(self) -> int:
        """Number of events, from the file's own record of them."""
        with self._reading():
            return int(self._scan({}).select(self.polars.len()).collect().item())

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:
        """Read the columns at once, or some rows after the other."""
        for first in (0,) if rows is None else range(0, max(self.n_rows, 1), rows):
            yield self.read(kinds, first, rows)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Columns of a number type, or true and false."""
        return tuple(n for n, t in self.schema.items() if t.is_numeric() or t == self.polars.Boolean)


class CsvFile(_Table):
    """A CSV file, plain or compressed; what a column holds is seen from its first rows."""

    # polars sees a row with too many cells, whose values are in the wrong columns, only if it parses
    # every column. Those that are not wanted are dropped piece by piece and cost no memory.
    _options: ClassVar = {"projection_pushdown": False}

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # polars renames the second of two equal names; a feature read twice is an error nobody sees.
        firsts = (name.rpartition("_duplicated_")[0] for name in self.names)
        again = next((name for name in firsts if name in self.schema), None)
        if again == "":
            raise InputError(f"several columns have no name in the header of {self.name}; give each a name of its own")
        if again is not None:
            raise InputError(f"column {shortened(repr(again))} appears more than once in the header of {self.name}")

    def _scan(self, kinds: Mapping[str, Kind]) -> LazyFrame:
        pl = self.polars
        schema: dict[str, Any] | None = None
        if kinds:
            # Whatever is not a number is read as text, so that no column is judged by its first rows.
            schema = dict.fromkeys(self.schema, pl.String)
            schema |= {name: self._types.get(kind, pl.String) for name, kind in kinds.items()}
            truth = [n for n, kind in kinds.items() if kind in self._types and self.schema[n] == pl.Boolean]
            schema |= dict.fromkeys(truth, pl.Boolean)
        lazy: LazyFrame = pl.scan_csv(self.path, schema=schema, infer_schema_length=_SAMPLE, glob=False)
        return lazy

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Columns with numbers in the first rows, even if with some text, which reading will then refuse."""
        pl = self.polars
        text = [n for n, t in self.schema.items() if t == pl.String and not matches(n, NEVER_FEATURES)]
        words = {n for n, t in self.schema.items() if t == pl.String}
        if text:
            with self._reading():
                sample = self._scan(dict.fromkeys(text, "value")).select(text).head(_SAMPLE).collect()
            for name in text:
                column = sample[name].drop_nulls()
                if column.len() == 0 or column.cast(pl.Float64, strict=False).is_not_null().any():
                    words.remove(name)
        return tuple(name for name in self.names if name not in words)

    def _raw(self, series: Series) -> Any:
        """Numbers where the first rows hold numbers, with NaN for empty cells."""
        if series.name not in self.numbers or series.null_count() == 0:
            return self._values(series)
        numbers = series.cast(self.polars.Float64, strict=False)
        if numbers.null_count() > series.null_count():
            raise InputError(f"column {series.name!r} of {self.name} holds text among numbers; correct it")
        return np.asarray(numbers.to_numpy())

    def _values(self, series: Series) -> AnyArray:
        """Read text as whole numbers, numbers or truth if all of it is."""
        pl = self.polars
        if series.null_count() == 0:
            if series.is_in(["true", "false"]).all():
                return np.asarray((series == "true").to_numpy())
            for dtype in (pl.Int64, pl.UInt64):
                numbers = series.cast(dtype, strict=False)
                if numbers.null_count() == 0:
                    return np.asarray(numbers.to_numpy())
            numbers = series.cast(pl.Float64, strict=False)
            # Integers that fit no type stay text: as floats, neighbours would be the same.
            if numbers.null_count() == 0 and not series.str.contains(r"^[+-]?\d+$").all():
                return np.asarray(numbers.to_numpy())
        return super()._values(series)
