"""Expressions of columns, such as ``"passSel && jet_pt[0] > 45"`` or ``"mcWeight * puWeight"``, for every file format.

They are cuts, weights and features. Only arithmetic, comparisons, logic, a few functions and the reduction of jagged
columns are understood, and nothing else is evaluated: an expression may come from a file that someone else wrote.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, BoolArray
from fivesigma.errors import InputError, did_you_mean, shortened

MOST_CHARACTERS = 10_000


def _between_pi(angle: Any) -> Any:
    """An angle between -pi and pi."""
    return angle - 2 * np.pi * np.round(angle / (2 * np.pi))


def _mass(*momenta: Any) -> Any:
    """Invariant mass of massless momenta, given as pt, eta, phi of one and of the other."""
    pt1, eta1, phi1, pt2, eta2, phi2 = momenta
    return np.sqrt(np.maximum(2 * pt1 * pt2 * (np.cosh(eta1 - eta2) - np.cos(phi1 - phi2)), 0.0))


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """One or the other for each event, or for each value of a jagged column."""
    library: Any = need("awkward") if any(map(is_jagged, (condition, yes, no))) else np
    return library.where(condition, yes, no)


def _sort(values: Any) -> Any:
    """The numbers of each event from the smallest to the largest, the missing ones in the end."""
    if not is_jagged(values):
        if np.ndim(values) != 2:
            raise ValueError(np.ndim(values))
        return np.sort(values, axis=1)
    awkward = need("awkward")
    missing = np.isnan(values)
    return awkward.concatenate([awkward.sort(values[~missing], axis=1), values[missing]], axis=1)


_NUMPY = ["abs", "exp", "log", "log10", "sqrt", "floor", "ceil", "sign", "hypot", "isnan", "maximum", "minimum"]
_NUMPY += [f"{arc}{name}{h}" for arc in ("", "arc") for name in ("sin", "cos", "tan") for h in ("", "h")]
#: Names as users of C++ and of ROOT write them.
_OTHER_NAMES = {
    "fabs": "abs",
    "pow": "power",
    "atan2": "arctan2",
    "len": "count",
    "deltaPhi": "deltaphi",
    "deltaR": "deltar",
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"{name}$": name.lower() for name in ("Sum", "Max", "Min", "Alt", "MaxIf", "MinIf")},
    "Length$": "count",
    "TMath::ATan2": "arctan2",
    "TVector2::Phi_mpi_pi": "phi_mpi_pi",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (*_NUMPY, "arctan2")},
    "power": lambda base, exponent: np.power(base * 1.0, exponent),
    "pi": lambda: np.float64(np.pi),
    "round": np.rint,
    "sort": _sort,
    "sq": lambda value: value * value,
    "where": _where,
    "alt": lambda value, other: _where(np.isnan(value), other, value),
    "phi_mpi_pi": _between_pi,
    "deltaphi": lambda one, other: _between_pi(one - other),
    "deltar": lambda eta1, phi1, eta2, phi2: np.hypot(eta1 - eta2, _between_pi(phi1 - phi2)),
    "mass": _mass,
}
_REDUCTIONS = ("sum", "max", "min", "count", "any", "all")
_KNOWN = (*_FUNCTIONS, *_REDUCTIONS, "maxif", "minif")
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
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
# Text, names in backticks, names of ROOT, logic of C++, and what groups: all else is left as it stands.
_TOKENS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[A-Za-z_]\w*(?:::\w+)+|[A-Za-z_]\w*\$|&&|\|\||!(?!=)|[()\[\],?:]")
_PYTHON = {"&&": " and ", "||": " or ", "!": " ~"}
_DEFINITION = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(?!=)\s*(.+)", re.DOTALL)
_CLOSING = {"(": ")", "[": "]"}


def split_definition(text: str) -> tuple[str, str] | None:
    """Name and expression of a definition such as ``"HT = sum(jet_pt)"``, or None if the text is none."""
    found = _DEFINITION.fullmatch(text)
    return None if found is None else (found[1], found[2])


class Expression:
    """A parsed expression: which columns it needs, and its value for each event.

    Both styles of logic are read: ``a > 1 && !(b < 2)`` and ``(a > 1) & ~(b < 2)``. A jagged column has several numbers
    per event: ``x[0]`` picks one (missing where there is none), ``x[y > 1]`` some, and sum, max, min, count, any and
    all make one of them.

    `what` is what messages call it: "cut", "weight", "feature 'HT'".
    """

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what = text, what
        if not isinstance(text, str):
            raise InputError(f"the {what} must be text, got {type(text).__name__}")
        if len(text) > MOST_CHARACTERS:
            raise self._error(f"it has {len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")
        self._quoted: dict[str, str] = {}
        try:
            self._python = _conditional(self._pieces(text))[0].strip()
            self._tree = ast.parse(self._python, mode="eval").body
            called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
            names = [name for node in ast.walk(self._tree) if id(node) not in called and (name := self._column(node))]
        except InputError:
            raise
        except (SyntaxError, ValueError, MemoryError, RecursionError) as err:
            raise self._error("it is not a complete expression") from err
        # The first part of a dotted name is not a column of its own.
        self.columns = frozenset(names) - {name.rpartition(".")[0] for name in names if "." in name}

    def _pieces(self, text: str) -> list[str]:
        """Split into pieces of Python, those that group by themselves; quoted names become plain ones."""
        pieces: list[str] = []
        end = 0
        for found in _TOKENS.finditer(text):
            token = found[0]
            pieces.append(text[end : found.start()])
            end = found.end()
            if token.startswith("`"):
                name = f"quoted_{len(self._quoted)}_"
                self._quoted[name] = token[1:-1]
                token = name
            elif "$" in token or "::" in token:
                token = self._of_root(token)
            pieces.append(_PYTHON.get(token, token))
        return [piece for piece in (*pieces, text[end:]) if piece]

    def _of_root(self, name: str) -> str:
        """A function of ROOT by the name that it has here."""
        short = name.removeprefix("TMath::").lower()
        known = _OTHER_NAMES.get(name) or {"max": "maximum", "min": "minimum"}.get(short, short)
        if known not in _KNOWN or (name.endswith("$") and name not in _OTHER_NAMES):
            raise self._error(f"{name!r} of ROOT is not understood; there are {', '.join(_KNOWN)}")
        return known

    def _column(self, node: ast.AST) -> str | None:
        """Name of a column; branches of ROOT may have dots in their names, and others stand in backticks."""
        if isinstance(node, ast.Name):
            return self._quoted.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self._column(node.value)
            return None if before is None else f"{before}.{node.attr}"
        return None

    def condition(self, columns: Mapping[str, Any], n_events: int | None = None) -> BoolArray:
        """Return True or False for each event; what is missing fails every comparison but ``!=``."""
        value = self._evaluate(columns, n_events)
        if _kind(value) not in "biu":
            raise self._error("it is not true or false for each event; compare the columns with something")
        return np.asarray(value != 0)

    def values(self, columns: Mapping[str, Any], n_events: int | None = None) -> AnyArray:
        """Return one number or truth for each event in its own type."""
        value = self._evaluate(columns, n_events)
        if _kind(value) not in "biuf":
            raise self._error("it is text, and a number for each event is needed")
        return value

    def _evaluate(self, columns: Mapping[str, Any], n_events: int | None) -> AnyArray:
        n_events = len(next(iter(columns.values()))) if n_events is None else n_events
        try:
            with np.errstate(all="ignore"):
                value = self._value(self._tree, columns)
        except InputError:
            raise
        except RecursionError as err:
            raise self._error("it is nested too deeply") from err
        except Exception as err:  # columns of objects, numbers that no type can hold
            raise self._error(f"its values cannot be computed ({type(err).__name__})") from err
        if isinstance(value, str):
            raise self._error("it is text, and a number for each event is needed")
        if is_jagged(value) or np.ndim(value) > 1:
            shape = str(value.type) if is_jagged(value) else " * ".join(map(str, (*np.shape(value), value.dtype)))
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
            case ast.Name() | ast.Attribute() if name := self._column(node):
                return columns[name]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self._value(arg, columns) for arg in args])
            case ast.Subscript(value=item, slice=index):
                return self._subscript(self._value(item, columns), index, columns)
            case ast.IfExp(test=test, body=body, orelse=other):
                return _where(self._truth(test, columns), self._value(body, columns), self._value(other, columns))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                self._refuse_bare_bits((left, *rights))
                values = [self._value(item, columns) for item in (left, *rights)]
                parts = [self._apply(type(op), a, b) for op, a, b in zip(ops, values, values[1:], strict=False)]
                return self._fold(operator.and_, parts)
            case ast.BoolOp(op=op, values=items):
                return self._fold(_LOGIC[type(op)], [self._truth(item, columns) for item in items])
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as op, right=right):
                values = [self._value(item, columns) for item in (left, right)]
                if any(_kind(value) in "iu" for value in values) and all(map(_has_bits, values)):
                    return self._combine(_LOGIC[type(op)], *map(_bits, values))
                return self._fold(_LOGIC[type(op)], [self._truth(item, columns, "b") for item in (left, right)])
            case ast.BinOp(op=ast.LShift() | ast.RShift(), right=count) if not _is_shift(count):
                raise self._error("<< and >> take a number of bits from 0 to 62")
            case ast.BinOp(op=ast.BitXor()):
                raise self._error("^ means a power in ROOT and something else in C++; write ** for a power")
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=item):
                return ~self._truth(item, columns)
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(type(op), self._value(left, columns), self._value(right, columns))
            case ast.UnaryOp(op=op, operand=item):
                return self._apply(type(op), self._value(item, columns))
        raise self._error(f"{shortened(ast.unparse(node))!r} is not understood")

    def _refuse_bare_bits(self, operands: tuple[ast.expr, ...]) -> None:
        """Refuse ``a > 1 & b > 2``, which would compare with the bits of 1 and b."""
        text = self._python.encode()
        for item in operands:
            if isinstance(item, ast.BinOp) and isinstance(item.op, ast.BitAnd | ast.BitOr):
                before, after = text[: item.col_offset].rstrip(), text[item.end_col_offset :].lstrip()
                if not (before.endswith(b"(") and after.startswith(b")")):
                    shown = shortened(ast.unparse(item))
                    raise self._error(
                        f"{shown!r} is not a condition; compare it, and put parentheses around each comparison"
                    )

    def _fold(self, combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
        return functools.reduce(functools.partial(self._combine, combine), parts)

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
            return self._pick(value, position)
        if position is not None or isinstance(index, ast.Slice | ast.Tuple):
            raise self._error(f"[{shortened(ast.unparse(index))}] is neither a whole number nor a condition")
        chosen = self._value(index, columns)
        if not is_jagged(chosen) and np.ndim(chosen) == 1 and _kind(chosen) in "iuf":
            return self._pick_each(value, chosen)
        mask = self._truth(index, columns)
        if not (is_jagged(value) and is_jagged(mask)):
            raise self._error("a condition in brackets chooses among the numbers of a jagged column, and needs one")
        try:
            return value[mask]
        except Exception as err:  # awkward raises many kinds
            raise self._error("a condition in brackets has other lengths than the column before it") from err

    def _pick(self, value: Any, position: int) -> Any:
        if not is_jagged(value):
            if np.ndim(value) != 2:
                raise self._error(f"[{position}] picks one of several numbers per event, and there is only one")
            inside = -value.shape[1] <= position < value.shape[1]
            return value[:, position] if inside else np.full(len(value), np.nan)
        awkward = need("awkward")
        enough = position + 1 if position >= 0 else -position
        return one_per_event(awkward.mask(value, awkward.num(value) >= enough)[:, position])

    def _pick_each(self, value: Any, position: AnyArray) -> Any:
        """The value at a position of its own in each event; missing where there is none, as at -1."""
        if not is_jagged(value):
            raise self._error("a position in brackets picks one of several numbers per event, and there is only one")
        awkward = need("awkward")
        with np.errstate(invalid="ignore"):
            there = (position >= 0) & (position < np.asarray(awkward.num(value)))
        at = np.where(there, position, 0).astype(np.int64)
        padded = awkward.pad_none(value, 1)
        picked = padded[np.arange(len(at)), at]
        return one_per_event(awkward.mask(picked, there))

    def _call(self, name: str, args: list[Any]) -> Any:
        name = _OTHER_NAMES.get(name, name)
        if name in ("max", "min") and len(args) == 2:  # as in C++
            name = f"{name}imum"
        if name in ("maxif", "minif") and len(args) == 2 and all(map(is_jagged, args)):
            return self._reduce(name[:3], args[0][args[1] != 0])
        if name in _REDUCTIONS:
            if len(args) != 1:
                raise self._error(f"{name} takes one column with several numbers per event")
            return self._reduce(name, args[0])
        if name not in _FUNCTIONS:
            known = did_you_mean(name, _KNOWN) or f"; there are {', '.join(_KNOWN)}"
            raise self._error(f"there is no function {shortened(name)!r}{known}")
        if any(_kind(arg) not in "biuf" for arg in args):
            raise self._error(f"{name} takes numbers")
        if name != "where":  # NumPy would make float16 of truth, which awkward does not have
            args = [arg * 1.0 if _kind(arg) == "b" else arg for arg in args]
        try:
            return _FUNCTIONS[name](*args)
        except Exception as err:  # awkward raises many kinds
            raise self._error(f"{name} does not take these arguments") from err

    def _reduce(self, name: str, value: Any) -> Any:
        """One number per event; the largest and the smallest of none are missing."""
        if _kind(value) not in "biuf":
            raise self._error(f"{name} takes numbers")
        if not is_jagged(value):
            if np.ndim(value) != 2:
                raise self._error(f"{name} takes a column with several numbers per event, and there is only one")
            if name == "count":
                return np.full(len(value), value.shape[1])
            return getattr(np, name)(value, axis=1)
        awkward = need("awkward")
        if name == "count":
            return np.asarray(awkward.num(value, axis=1))
        return one_per_event(getattr(awkward, name)(value, axis=1))

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
        return self._combine(_OPERATORS[op], *args)

    def _combine(self, operation: Callable[..., Any], *args: Any) -> Any:
        try:
            return operation(*args)
        except Exception as err:  # awkward raises many kinds
            raise self._error("it combines columns with other numbers of values per event") from err

    def _error(self, why: str) -> InputError:
        return InputError(f"the {self.what} {shortened(str(self.text))!r} cannot be used: {why}")


def _conditional(pieces: list[str], at: int = 0, closing: str = "") -> tuple[str, int]:
    """Python for pieces up to a closing bracket, with ``a ? b : c`` as ``b if a else c``; and where they end."""
    items, parts = [], [""]  # finished arguments; parts of a conditional, with its marks between them
    while at < len(pieces) and pieces[at] != closing:
        piece = pieces[at]
        at += 1
        if piece in _CLOSING:
            inside, at = _conditional(pieces, at, _CLOSING[piece])
            parts[-1] += f"{piece}{inside}{_CLOSING[piece]}"
        elif piece == ",":
            items.append(_choose(parts))
            parts = [""]
        elif piece in "?:":
            parts += [piece, ""]
        else:
            parts[-1] += piece
    if closing and at == len(pieces):
        raise ValueError(closing)  # it is not closed
    return ",".join([*items, _choose(parts)]), at + bool(closing)


def _choose(parts: list[str]) -> str:
    """Texts with ? and : between them, as Python has it: the first ? belongs to the : at its own depth."""
    if "?" not in parts:
        return "".join(parts)
    first = parts.index("?")
    depth = 0
    for at in range(first + 1, len(parts)):
        depth += {"?": 1, ":": -1}.get(parts[at], 0)
        if depth < 0:
            test, yes, no = "".join(parts[:first]), _choose(parts[first + 1 : at]), _choose(parts[at + 1 :])
            return f"(({yes}) if ({test}) else ({no}))"
    raise ValueError("?")


def _has_bits(value: Any) -> bool:
    """Whether all numbers are whole, as flags are, or missing, as they may be where one of several was picked."""
    if _kind(value) == "f" and not is_jagged(value):
        return bool(np.all(~np.isfinite(value) | (value == np.round(value))))
    return _kind(value) in "iu"


def _bits(value: Any) -> Any:
    """Whole numbers; what is missing has no bits."""
    return np.where(np.isfinite(value), value, 0).astype(np.int64) if _kind(value) == "f" else value


def _is_shift(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value < 63


def _number(value: float) -> Any:
    """A constant of a fixed size, so that no power of it takes long."""
    fits = isinstance(value, int) and abs(value) < 1 << 63
    return np.int64(value) if fits else np.float64(value)  # or an OverflowError


def is_jagged(value: Any) -> bool:
    """Whether it is an array of awkward, with several values per event."""
    return type(value).__module__.partition(".")[0] == "awkward"


def _kind(value: Any) -> str:
    """The kind of a value's numbers: b, i, u, f, or U for text and all else."""
    if isinstance(value, str):
        return "U"
    if not is_jagged(value):
        kind = np.asarray(value).dtype.kind
        return kind if kind in "biuf" else "U"
    name = str(value.type).replace("?", "").rpartition("* ")[2].strip()
    for kind, starts in (("b", "bool"), ("i", "int"), ("u", "uint"), ("f", "float")):
        if name.startswith(starts):
            return kind
    return "U"


def one_per_event(value: Any, *, gaps: bool = False) -> Any:
    """An array of NumPy if there is one value per event; missing numbers are NaN, missing truths false, or all None."""
    awkward = need("awkward")
    kind = str(value.type).partition("* ")[2]
    if value.fields or kind.startswith("union"):
        return value
    if value.ndim != 1:
        if "option" in kind or "?" in kind:  # as polars and pyarrow have it: a list that is missing is empty
            value = awkward.fill_none(value, [], axis=0)
            number = _kind(value) in "iuf"
            value = awkward.fill_none(awkward.values_astype(value, np.float64), np.nan, axis=-1) if number else value
        return value
    if kind.strip("?") == "string" or (gaps and "?" in kind):
        return np.array([*value.to_list(), None], dtype=object)[:-1]
    if _kind(value) == "b":
        return np.asarray(awkward.fill_none(value, False))
    if "?" in str(value.type):
        value = awkward.fill_none(awkward.values_astype(value, np.float64), np.nan)
    return np.asarray(value)
