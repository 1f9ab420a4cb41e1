"""Expressions in columns: cuts such as ``"PRI_jet_num >= 2 && abs(PRI_lep_eta) < 2.1"``, the same for every format.

Only comparisons, arithmetic, logic and a few functions are understood, and nothing else is evaluated: a cut
may come from a file that someone else wrote.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma.errors import InputError, did_you_mean, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["Cut"]

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
_LOGIC: dict[type[ast.AST], np.ufunc] = {
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Not: np.logical_not,
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
    ast.Invert: np.logical_not,
}


class Cut:
    """A parsed cut: which columns it needs, and which events pass it.

    Both styles of logic are read: ``a > 1 && !(b < 2)`` and ``(a > 1) & ~(b < 2)``.

    Examples
    --------
    >>> cut = Cut("n >= 2 && abs(eta) < 2.5")
    >>> sorted(cut.columns)
    ['eta', 'n']
    >>> cut.passes({"n": np.array([1, 2, 3]), "eta": np.array([0.1, -3.0, 1.0])})
    array([False, False,  True])
    """

    def __init__(self, text: str) -> None:
        self.text = text
        python = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or ")).strip()
        try:
            self._tree = ast.parse(python, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as err:
            raise self._error("it is not a complete expression") from err
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        names = [node for node in ast.walk(self._tree) if isinstance(node, ast.Name)]
        self.columns = frozenset(node.id for node in names if id(node) not in called)

    def passes(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return True for each event that passes; NaN fails every comparison but ``!=``."""
        try:
            with np.errstate(all="ignore"):
                passed = np.asarray(self._value(self._tree, columns))
        except (OverflowError, RecursionError) as err:
            raise self._error("a number in it is too large, or it is nested too deeply") from err
        if passed.dtype != bool or passed.ndim != 1:
            raise self._error("it is not true or false for each event; compare the columns with something")
        return passed

    def _value(self, node: ast.AST, columns: Mapping[str, NDArray[Any]]) -> Any:
        match node:
            case ast.Constant(value=bool() | float() | str() as value):
                return value
            case ast.Constant(value=int() as value):
                return float(value)  # so that 9**9**9 overflows at once
            case ast.Name(id=name):
                return columns[name]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self._value(arg, columns) for arg in args])
            case ast.Compare(left=left, ops=ops, comparators=rights):
                values = [self._value(item, columns) for item in (left, *rights)]
                pairs = zip(ops, values, values[1:], strict=False)
                return np.logical_and.reduce([self._apply(type(op), a, b) for op, a, b in pairs])
            case ast.BoolOp(op=op, values=items):
                conditions = [self._condition(item, columns) for item in items]
                return _LOGIC[type(op)].reduce(np.broadcast_arrays(*conditions))
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as op, right=right):
                return _LOGIC[type(op)](self._condition(left, columns), self._condition(right, columns))
            case ast.UnaryOp(op=ast.Not() | ast.Invert() as op, operand=item):
                return _LOGIC[type(op)](self._condition(item, columns))
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(type(op), self._value(left, columns), self._value(right, columns))
            case ast.UnaryOp(op=op, operand=item):
                return self._apply(type(op), self._value(item, columns))
        raise self._error(f"{shortened(ast.unparse(node))!r} is not understood")

    def _condition(self, node: ast.AST, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        value = np.asarray(self._value(node, columns))
        if value.dtype != bool:
            text = shortened(ast.unparse(node))
            raise self._error(f"{text!r} is not a condition; put parentheses around each comparison")
        return value

    def _call(self, name: str, args: list[Any]) -> Any:
        if name not in _FUNCTIONS:
            hint = did_you_mean(name, _FUNCTIONS)
            known = hint or f"; there are {', '.join(_FUNCTIONS)}"
            raise self._error(f"there is no function {shortened(name)!r}{known}")
        try:
            return _FUNCTIONS[name](*args)
        except (TypeError, ValueError) as err:
            raise self._error(f"{name} does not take these arguments") from err

    def _apply(self, op: type[ast.AST], *args: Any) -> Any:
        if op not in _OPERATORS:
            raise self._error(f"{op.__name__} is not an operator that a cut can hold")
        if op is ast.Mod and any(np.asarray(arg).dtype.kind not in "biuf" for arg in args):
            raise self._error("it takes the remainder of text")  # Python would format it, at any length
        try:
            return _OPERATORS[op](*args)
        except (TypeError, ValueError, ArithmeticError) as err:  # text with a number, 1 / 0 between constants
            raise self._error("it compares or combines text with numbers, or divides by zero") from err

    def _error(self, why: str) -> InputError:
        return InputError(f"the cut {shortened(repr(self.text))} cannot be used: {why}")
