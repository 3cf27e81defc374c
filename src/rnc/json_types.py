"""Check the types of values read from JSON files, which may be damaged or edited.

check_json     checks a value by a type hint, such as list[str], dict[str, float] or a TypedDict
check_fields   checks the fields of a dataclass
damaged        turns any other error about a value into one that names the file
"""

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

_LARGEST = 2**63
_SURPRISES = (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError)


def check_json(value: Any, hint: Any, where: str) -> None:
    """Raise ValueError unless a value of JSON types matches a type hint.

    Args:
        value: the value in the file.
        hint: as in annotations. A float must be finite; an int is accepted for it.
        where: name of the value in its file, such as "model.head.d".

    >>> check_json([1, 2.5], list[float], "rates")
    >>> check_json({"mae": "low"}, dict[str, float], "test")
    Traceback (most recent call last):
    ...
    ValueError: test.mae must be a number; got 'low'.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return
    if origin in (Union, types.UnionType):
        _check_union(value, inner, where)
    elif origin is Literal:
        _need(value in inner if isinstance(value, str | int) else False, value, hint, where)
    elif is_typeddict(hint):
        _need(isinstance(value, dict), value, dict, where)
        if absent := sorted(name for name in hint.__required_keys__ if name not in value):
            raise ValueError(f"{where} needs {', '.join(absent)}.")
        _check_items(value, get_type_hints(hint), where)
    elif origin in (dict, Mapping):
        _need(isinstance(value, dict), value, dict, where)
        for name, one in value.items():
            check_json(one, inner[1], f"{where}.{name}")
    elif origin in (list, tuple, Sequence):
        _check_sequence(value, origin, inner, where)
    else:
        _need(_is_plain(value, hint), value, hint, where)


def check_fields(
    fields: Any, cls: type[Any], where: str, *, all_known: bool = True, complete: bool = True
) -> None:
    """Raise ValueError unless these are fields of a dataclass, by name and type.

    Args:
        fields: the object in the file.
        cls: the dataclass.
        where: as for `check_json`.
        all_known: whether an unknown field is an error.
        complete: whether a missing field without a default is an error.
    """
    _need(isinstance(fields, dict), fields, dict, where)
    hints = get_type_hints(cls)
    if all_known and (unknown := sorted(set(fields) - set(hints))):
        raise ValueError(f"{where} has {', '.join(unknown)}, which is unknown.")
    missing = dataclasses.MISSING
    for field in dataclasses.fields(cls) if complete else ():
        is_needed = field.default is missing and field.default_factory is missing
        if is_needed and field.name not in fields:
            raise ValueError(f"{where} needs {field.name}.")
    _check_items(fields, hints, where)


@contextmanager
def damaged(path: Path, advice: str) -> Iterator[None]:
    """A context that turns errors about values into one that names the file and gives advice."""
    try:
        yield
    except (ValueError, *_SURPRISES) as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} cannot be used: {reason.rstrip('.')}. {advice}") from error


def _check_items(value: Mapping[str, Any], hints: Mapping[str, Any], where: str) -> None:
    for name, one in value.items():
        if name in hints:
            check_json(one, hints[name], f"{where}.{name}" if where else name)


def _check_union(value: Any, members: Sequence[Any], where: str) -> None:
    reasons = []
    for member in members:
        try:
            return check_json(value, member, where)
        except ValueError as error:
            reasons.append(str(error))
    if all(is_typeddict(member) for member in members):
        return check_json(value, members[-1], where)
    raise ValueError(reasons[0])


def _check_sequence(value: Any, origin: Any, inner: Sequence[Any], where: str) -> None:
    _need(isinstance(value, list | tuple), value, list, where)
    fixed = origin is tuple and Ellipsis not in inner
    if fixed and len(value) != len(inner):
        raise ValueError(f"{where} must have {len(inner)} values; got {len(value)}.")
    for i, one in enumerate(value):
        check_json(one, inner[i] if fixed else inner[0], f"{where}[{i}]")


def _is_plain(value: Any, hint: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float:
        return is_number and math.isfinite(value) and abs(value) < 1e300
    if hint is int:
        return isinstance(value, int) and is_number and abs(value) < _LARGEST
    if hint is type(None):
        return value is None
    return not isinstance(hint, type) or isinstance(value, hint)


def _need(is_fine: bool, value: Any, hint: Any, where: str) -> None:
    if not is_fine:
        words = _WORDS.get(hint, f"one of {', '.join(map(repr, get_args(hint)))}")
        shown = repr(value)
        shown = shown if len(shown) < 60 else f"{shown[:60]}..."
        raise ValueError(f"{where or 'the file'} must be {words}; got {shown}.")


_WORDS: dict[Any, str] = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    type(None): "null",
    dict: "an object",
    list: "a list",
}
