"""Expressions of columns, such as ``"passSel && jet_pt[0] > 45"`` or ``"mcWeight * puWeight"``, for every file format.

They are cuts, weights and features. Only arithmetic, comparisons, logic, a few functions and the reduction of jagged
columns are understood, and nothing else is evaluated: an expression may come from a file that someone else wrote.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.errors import InputError, did_you_mean, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["Expression", "split_definition"]

MOST_CHARACTERS = 10_000

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "isnan": np.isnan,
    "log": np.log,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
}
_REDUCTIONS = ("sum", "max", "min", "count", "any", "all")
_KNOWN = (*_FUNCTIONS, *_REDUCTIONS)
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_LOGIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
# The logic of C++ becomes that of Python, but not inside of text.
_TOKENS = re.compile(r"'[^']*'|\"[^\"]*\"|&&|\|\||!(?!=)")
_PYTHON = {"&&": " and ", "||": " or ", "!": " not "}
_DEFINITION = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(?!=)\s*(.+)", re.DOTALL)


def split_definition(text: str) -> tuple[str, str] | None:
    """Name and expression of a definition such as ``"HT = sum(jet_pt)"``, or None if the text is none.

    Examples
    --------
    >>> split_definition("HT = sum(jet_pt)"), split_definition("mass"), split_definition("a == b")
    (('HT', 'sum(jet_pt)'), None, None)
    """
    found = _DEFINITION.fullmatch(text)
    return None if found is None else (found[1], found[2])


class Expression:
    """A parsed expression: which columns it needs, and its value for each event.

    Both styles of logic are read: ``a > 1 && !(b < 2)`` and ``(a > 1) & ~(b < 2)``. A jagged column has several numbers
    per event: ``x[0]`` picks one (missing where there is none), ``x[y > 1]`` some, and sum, max, min, count, any and
    all make one of them.

    Parameters
    ----------
    text : str
    what : str
        What error messages call it: "cut", "weight", "feature 'HT'".

    Examples
    --------
    >>> cut = Expression("n >= 2 && abs(eta) < 2.5", "cut")
    >>> sorted(cut.columns)
    ['eta', 'n']
    >>> cut.condition({"n": np.array([1, 2, 3]), "eta": np.array([0.1, -3.0, 1.0])})
    array([False, False,  True])
    >>> Expression("a * b", "weight").number({"a": np.array([2.0, 3.0]), "b": np.array([0.5, 1.0])})
    array([1., 3.])
    """

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what = text, what
        if not isinstance(text, str):
            raise InputError(f"the {what} must be text, got {type(text).__name__}")
        if len(text) > MOST_CHARACTERS:
            raise self._error(f"it has {len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")
        python = _TOKENS.sub(lambda found: _PYTHON.get(found[0], found[0]), text).strip()
        try:
            self._tree = ast.parse(python, mode="eval").body
            called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
            names = [name for node in ast.walk(self._tree) if id(node) not in called and (name := _column(node))]
        except (SyntaxError, ValueError, MemoryError, RecursionError) as err:
            raise self._error("it is not a complete expression") from err
        # The first part of a dotted name is not a column of its own.
        self.columns = frozenset(names) - {name.rpartition(".")[0] for name in names if "." in name}

    def condition(self, columns: Mapping[str, Any], n_events: int | None = None) -> NDArray[np.bool_]:
        """Return True or False for each event; what is missing fails every comparison but ``!=``."""
        value = self._evaluated(columns, n_events)
        if _kind(value) not in "biu":
            raise self._error("it is not true or false for each event; compare the columns with something")
        return np.asarray(value != 0)

    def number(self, columns: Mapping[str, Any], n_events: int | None = None) -> NDArray[np.float64]:
        """Return one number for each event, NaN where it is missing."""
        return np.asarray(self.values(columns, n_events), dtype=np.float64)

    def values(self, columns: Mapping[str, Any], n_events: int | None = None) -> NDArray[Any]:
        """Return one number or truth for each event in its own type."""
        value = self._evaluated(columns, n_events)
        if _kind(value) not in "biuf":
            raise self._error("it is text, and a number for each event is needed")
        return value

    def _evaluated(self, columns: Mapping[str, Any], n_events: int | None) -> NDArray[Any]:
        n_events = len(next(iter(columns.values()))) if n_events is None else n_events
        try:
            with np.errstate(all="ignore"):
                value = self._value(self._tree, columns)
        except RecursionError as err:
            raise self._error("it is nested too deeply") from err
        if isinstance(value, str):
            raise self._error("it is text, and a number for each event is needed")
        if _jagged(value) or np.ndim(value) > 1:
            shape = str(value.type) if _jagged(value) else " * ".join(map(str, (*np.shape(value), value.dtype)))
            raise self._error(
                f"it has not one number per event but the shape {shape}; pick one with [0], or use "
                f"{', '.join(_REDUCTIONS)}"
            )
        return np.broadcast_to(np.asarray(value), (n_events,)) if np.ndim(value) == 0 else np.asarray(value)

    def _value(self, node: ast.AST, columns: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=bool() | str() as value):
                return value
            case ast.Constant(value=int() | float() as value):
                return _number(value)
            case ast.Name() | ast.Attribute() if name := _column(node):
                return columns[name]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self._value(arg, columns) for arg in args])
            case ast.Subscript(value=item, slice=index):
                return self._subscript(self._value(item, columns), index, columns)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                values = [self._value(item, columns) for item in (left, *rights)]
                parts = [self._apply(type(op), a, b) for op, a, b in zip(ops, values, values[1:], strict=False)]
                return self._reduced(operator.and_, parts)
            case ast.BoolOp(op=op, values=items):
                return self._reduced(_LOGIC[type(op)], [self._truth(item, columns) for item in items])
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as op, right=right):
                # These bind closer than comparisons, so that flags which are numbers would hide a mistake.
                return self._reduced(_LOGIC[type(op)], [self._truth(item, columns, "b") for item in (left, right)])
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=item):
                return ~self._truth(item, columns)
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(type(op), self._value(left, columns), self._value(right, columns))
            case ast.UnaryOp(op=op, operand=item):
                return self._apply(type(op), self._value(item, columns))
        raise self._error(f"{shortened(ast.unparse(node))!r} is not understood")

    def _reduced(self, combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
        value = parts[0]
        for part in parts[1:]:
            value = self._combined(combine, value, part)
        return value

    def _truth(self, node: ast.AST, columns: Mapping[str, Any], kinds: str = "biu") -> Any:
        """A condition; whole numbers are flags, true unless they are zero."""
        value = self._value(node, columns)
        if _kind(value) not in kinds:
            text = shortened(ast.unparse(node))
            raise self._error(f"{text!r} is not a condition; compare it, and put parentheses around each comparison")
        return np.bool_(value) if isinstance(value, bool) else value != 0

    def _subscript(self, value: Any, index: ast.AST, columns: Mapping[str, Any]) -> Any:
        try:
            position = ast.literal_eval(index)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            position = None
        if isinstance(position, int) and not isinstance(position, bool) and abs(position) < 1 << 31:
            return self._picked(value, position)
        if position is not None or isinstance(index, ast.Slice | ast.Tuple):
            raise self._error(f"[{shortened(ast.unparse(index))}] is neither a whole number nor a condition")
        mask = self._truth(index, columns)
        if not (_jagged(value) and _jagged(mask)):
            raise self._error("a condition in brackets chooses among the numbers of a jagged column, and needs one")
        try:
            return value[mask]
        except Exception as err:  # awkward raises many kinds
            raise self._error("a condition in brackets has other lengths than the column before it") from err

    def _picked(self, value: Any, position: int) -> Any:
        if not _jagged(value):
            if np.ndim(value) != 2:
                raise self._error(f"[{position}] picks one of several numbers per event, and there is only one")
            inside = -value.shape[1] <= position < value.shape[1]
            return value[:, position] if inside else np.full(len(value), np.nan)
        awkward = need("awkward")
        enough = position + 1 if position >= 0 else -position
        return _flat(awkward.mask(value, awkward.num(value) >= enough)[:, position])

    def _call(self, name: str, args: list[Any]) -> Any:
        if name in _REDUCTIONS:
            if len(args) != 1:
                raise self._error(f"{name} takes one column with several numbers per event")
            return self._reduce(name, args[0])
        if name not in _FUNCTIONS:
            known = did_you_mean(name, _KNOWN) or f"; there are {', '.join(_KNOWN)}"
            raise self._error(f"there is no function {shortened(name)!r}{known}")
        if any(_kind(arg) not in "biuf" for arg in args):
            raise self._error(f"{name} takes numbers")
        try:
            return _FUNCTIONS[name](*args)
        except (TypeError, ValueError) as err:
            raise self._error(f"{name} does not take these arguments") from err

    def _reduce(self, name: str, value: Any) -> Any:
        """One number per event; the largest and the smallest of none are missing."""
        if _kind(value) not in "biuf":
            raise self._error(f"{name} takes numbers")
        if not _jagged(value):
            if np.ndim(value) != 2:
                raise self._error(f"{name} takes a column with several numbers per event, and there is only one")
            if name == "count":
                return np.full(len(value), value.shape[1])
            return getattr(np, name)(value, axis=1)
        awkward = need("awkward")
        if name == "count":
            return np.asarray(awkward.num(value, axis=1))
        return _flat(getattr(awkward, name)(value, axis=1))

    def _apply(self, op: type[ast.AST], *args: Any) -> Any:
        if op not in _OPERATORS:
            raise self._error(f"{op.__name__} is not an operator of expressions")
        text = [_kind(arg) not in "biuf" for arg in args]
        if any(text) and not (all(text) and op in (ast.Eq, ast.NotEq)):
            raise self._error("text can be compared with text by == and !=, and nothing else")
        if op is ast.Pow:  # whole numbers would overflow in silence, and none can have a negative power
            args = tuple(arg if _kind(arg) == "f" else arg * 1.0 for arg in args)
        if op in (ast.Sub, ast.USub):  # NumPy has no difference of truths
            args = tuple(arg * 1 if _kind(arg) == "b" else arg for arg in args)
        return self._combined(_OPERATORS[op], *args)

    def _combined(self, operation: Callable[..., Any], *args: Any) -> Any:
        try:
            return operation(*args)
        except Exception as err:  # awkward raises many kinds
            raise self._error("it combines columns with other numbers of values per event") from err

    def _error(self, why: str) -> InputError:
        return InputError(f"the {self.what} {shortened(str(self.text))!r} cannot be used: {why}")


def _column(node: ast.AST) -> str | None:
    """Name of a column; branches of ROOT may have dots in their names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _column(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _number(value: float) -> Any:
    """A constant of a fixed size, so that no power of it takes long."""
    fits = isinstance(value, int) and abs(value) < 1 << 63
    return np.int64(value) if fits else np.float64(value)


def _jagged(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "awkward"


def _kind(value: Any) -> str:
    """The kind of a value's numbers: b, i, u, f, or U for text and all else."""
    if isinstance(value, str):
        return "U"
    if not _jagged(value):
        kind = np.asarray(value).dtype.kind
        return kind if kind in "biuf" else "U"
    name = str(value.type).replace("?", "").rpartition("* ")[2].strip()
    for kind, starts in (("b", "bool"), ("i", "int"), ("u", "uint"), ("f", "float")):
        if name.startswith(starts):
            return kind
    return "U"


def _flat(value: Any) -> Any:
    """An array of NumPy if there is one value per event; missing numbers are NaN, missing truths false."""
    awkward = need("awkward")
    if value.ndim != 1:
        return value
    if _kind(value) == "b":
        return np.asarray(awkward.fill_none(value, False))
    if "?" in str(value.type):
        value = awkward.fill_none(awkward.values_astype(value, np.float64), np.nan)
    return np.asarray(value)
