"""Parquet files that a disk damaged: read or refused with one sentence, and polars is not killed by them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.datasets import load_events
from fivesigma.datasets.parquet_pages import check_pages
from fivesigma.errors import InputError

polars = pytest.importorskip("polars")

_READ_ALL = """
import sys
from pathlib import Path
from fivesigma.datasets import load_events
from fivesigma.errors import InputError
path, out = Path(sys.argv[1]), Path(sys.argv[1]).with_name("flipped.parquet")
whole = path.read_bytes()
refused = 0
for place in range(4, 210):
    for bit in (0, 1, 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        out.write_bytes(flipped)
        try:
            load_events(out, missing=None)
        except InputError as err:
            assert "\\n" not in str(err)
            refused += 1
print(refused)
"""


def small(path: Path) -> Path:
    """A file with an empty cell; a flip of the sign of a number of values in it made polars abort."""
    table = {"x": [0.5, None, 2.5, 1.0], "Weight": [1.0, 2.0, 1.0, 1.0], "Label": ["s", "b", "s", "b"]}
    polars.DataFrame(table).write_parquet(path, compression="uncompressed", statistics=False)
    return path


def test_no_flip_in_the_pages_kills_or_prints(tmp_path: Path) -> None:
    path = small(tmp_path / "events.parquet")
    done = subprocess.run([sys.executable, "-c", _READ_ALL, str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert int(done.stdout) > 100


def flipped(path: Path, place: int) -> Path:
    """Write a file with one bit flipped."""
    content = bytearray(small(path).read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    return path


def test_negative_numbers_of_values(tmp_path: Path) -> None:
    """Of Thrift's numbers the lowest bit is the sign: of each column a page has its sizes and its number of values."""
    reasons = []
    for place in range(4, 210):
        path = flipped(tmp_path / "events.parquet", place)
        try:
            check_pages(path)
        except InputError as err:
            reasons.append(str(err))
    assert all("\n" not in reason and reason.startswith("cannot read events.parquet: ") for reason in reasons)
    assert sum("missing or negative" in reason for reason in reasons) >= 9


def test_a_panic_is_one_line(tmp_path: Path) -> None:
    for place in range(4, 210):
        path = flipped(tmp_path / "events.parquet", place)
        try:
            load_events(path)
        except InputError as err:
            if "polars gave up on it" in str(err):
                break
    else:
        pytest.skip("this polars does not panic")
    command = [sys.executable, "-m", "fivesigma", "train", str(path), "-o", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: cannot read events.parquet: polars gave up on it; the file may be damaged"
    ]


COUNT = 700
FRAME = {
    "x": np.random.default_rng(0).normal(size=COUNT),
    "word": ["ab"[k % 2] for k in range(COUNT)],
    "several": [[1.0] * (k % 4) for k in range(COUNT)],
    "nested": [{"a": k, "b": [k] * (k % 3)} for k in range(COUNT)],
    "true": [k % 3 == 0 for k in range(COUNT)],
    "nothing": [None] * COUNT,
    "some": [None if k % 3 else k for k in range(COUNT)],
}


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("options", [{}, {"row_group_size": 100}, {"data_page_size": 200}])
def test_what_polars_writes_is_let_pass(tmp_path: Path, compression: Any, options: dict[str, int]) -> None:
    for frame in (polars.DataFrame(FRAME), polars.DataFrame(FRAME).head(0)):
        frame.write_parquet(tmp_path / "a.parquet", compression=compression, **options)
        check_pages(tmp_path / "a.parquet")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_what_pyarrow_writes_is_let_pass(tmp_path: Path, version: str, dictionary: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    options = {"data_page_version": version, "use_dictionary": dictionary, "write_page_index": dictionary}
    path = tmp_path / "a.parquet"
    parquet.write_table(polars.DataFrame(FRAME).to_arrow(), path, row_group_size=300, data_page_size=300, **options)
    check_pages(path)
    unused = pandas.Categorical(["a", "b"], categories=[*map(str, range(50)), "a", "b"])
    pandas.DataFrame({"c": unused}).to_parquet(path)  # more words in the dictionary than rows
    check_pages(path)


def unsigned(value: int) -> bytes:
    """Write a length as Thrift does: seven bits a byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(value: int) -> bytes:
    """Write a number, whose lowest bit is the sign."""
    return unsigned(value << 1)


def of_footer(path: Path, footer: bytes, pages: bytes = b"") -> Path:
    path.write_bytes(b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return path


@pytest.mark.parametrize("footer", [b"\x19" * 5000, b"\x1c" * 5000, b"\x19\x1c" * 5000])
def test_a_footer_that_is_nested_without_end(tmp_path: Path, footer: bytes) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        load_events(of_footer(tmp_path / "events.parquet", footer))


def test_columns_that_share_their_pages(tmp_path: Path) -> None:
    """With 500 columns of the same 2,000 pages, a small file would take a million steps."""
    n_columns, n_pages = 500, 2_000
    page = b"\x15\x00\x15\x00\x15\x00\x2c" + b"\x15" + number(1) + b"\0\0"  # a data page with one value
    schema = b"\x48\x01r\x15" + number(n_columns) + b"\0" + b"\x48\x01c\0" * n_columns
    chunk = b"\x3c\x56" + number(n_pages) + b"\x46" + number(4) + b"\0\0"
    group = b"\x19\xfc" + unsigned(n_columns) + chunk * n_columns + b"\x26" + number(n_pages) + b"\0"
    footer = b"\x29\xfc" + unsigned(n_columns + 1) + schema + b"\x16" + number(n_pages) + b"\x19\x1c" + group + b"\0"
    path = of_footer(tmp_path / "events.parquet", footer, page * n_pages)
    with pytest.raises(InputError, match="several columns have the same pages"):
        load_events(path)
