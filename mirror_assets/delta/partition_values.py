"""Partition values: the text that a typed value has in `partitionValues` (rules, section 5.1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mirror_assets.delta.schema import PrimitiveType

TextCheck = Callable[[str], bool]

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOAT_NAMES: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_DATE_TEXT: Final = r"[+-]?[0-9]{4,7}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME_TEXT: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_DATE: Final = re.compile(_DATE_TEXT)
_LOCAL_TIMESTAMP: Final = re.compile(f"{_DATE_TEXT} {_TIME_TEXT}")
_TIMESTAMP: Final = re.compile(f"{_DATE_TEXT}(?: {_TIME_TEXT}|T{_TIME_TEXT}Z)")
_INTEGER_BITS: Final = {"byte": 7, "short": 15, "integer": 31, "long": 63}
#: a directory's name for null, never a value
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def text_check(kind: PrimitiveType | None) -> TextCheck:
    """Tell by type whether a non-empty text is a value; an unknown type takes every text."""
    if kind is None:
        return _is_any_text
    if kind.name in _INTEGER_BITS:
        return _integer_check(_INTEGER_BITS[kind.name])
    if (parameters := kind.decimal) is not None:
        return _decimal_check(*parameters)
    return _CHECKS.get(kind.name, _is_any_text)


def _is_any_text(text: str) -> bool:
    return text != _HIVE_NULL


def _integer_check(bits: int) -> TextCheck:
    smallest, largest = -(2**bits), 2**bits - 1

    def is_integer(text: str) -> bool:
        return _INTEGER.fullmatch(text) is not None and smallest <= int(text) <= largest

    return is_integer


def _decimal_check(precision: int, scale: int) -> TextCheck:
    whole_digits = precision - scale

    def is_decimal(text: str) -> bool:
        if _FLOAT.fullmatch(text) is None:
            return False
        try:
            _, digits, exponent = Decimal(text).normalize().as_tuple()
        except InvalidOperation:
            return False
        if not isinstance(exponent, int) or digits == (0,):
            return True
        return -exponent <= scale and len(digits) + exponent <= whole_digits

    return is_decimal


def _matches(pattern: re.Pattern[str]) -> TextCheck:
    def matches(text: str) -> bool:
        return pattern.fullmatch(text) is not None

    return matches


def _is_float(text: str) -> bool:
    return text in _FLOAT_NAMES or _FLOAT.fullmatch(text) is not None


def _is_boolean(text: str) -> bool:
    return text in ("true", "false")


def _is_string(text: str) -> bool:
    return "\x00" not in text and _is_any_text(text)


_CHECKS: Final[dict[str, TextCheck]] = {
    "string": _is_string,
    "float": _is_float,
    "double": _is_float,
    "boolean": _is_boolean,
    "date": _matches(_DATE),
    "timestamp": _matches(_TIMESTAMP),
    "timestamp_ntz": _matches(_LOCAL_TIMESTAMP),
}
