"""Flags from the fields of a dataclass, and fields from the words that a user typed."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

Folder = Annotated[Path, typer.Argument(help="a run folder", show_default=False)]
Images = Annotated[Path | None, typer.Option(help="folder that image file names are relative to")]
Fields = TypeVar("Fields")

_WORDS = {True: ("true", "yes", "on", "1"), False: ("false", "no", "off", "0")}
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def with_flags(command: Callable[..., None], *classes: Any) -> Callable[..., None]:
    """Give a command one flag per field of some dataclasses, in place of its **options.

    An annotation holds the help as text, or a parameter of typer's.
    """
    flags = []
    for cls in classes:
        hints = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            kind, note = get_args(hints[field.name])
            option = typer.Option(help=note) if isinstance(note, str) else note
            missing = field.default is dataclasses.MISSING
            flags.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if missing else field.default,
                    annotation=Annotated[kind, option],
                )
            )
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    command.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
    return command


def take(options: dict[str, Any], cls: type[Fields]) -> Fields:
    """The dataclass that the options of a command with its flags fill."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: options[name] for name in names})


def typed(fields: Any) -> list[str]:
    """The words that a user would type for a dataclass; what is at its default is left out.

    >>> from rnc.config import FitConfig
    >>> typed(FitConfig(lr=0.1, flip=False, encoder="mlp"))
    ['--encoder', 'mlp', '--lr', '0.1', '--no-flip']
    """
    words: list[str] = []
    for field in dataclasses.fields(fields):
        value, flag = getattr(fields, field.name), field.name.replace("_", "-")
        if field.default is dataclasses.MISSING:
            words.append(str(value))
        elif value == field.default or value is None:
            continue
        elif isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{flag}", str(one)]
    return words


def pair(flag: str, text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE, with - in the key as _."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise ValueError(f"{flag} needs KEY=VALUE; got {text!r}.")
    return key.strip().replace("-", "_"), value.strip()


def value_of(text: str, kind: Any) -> Any:
    """A word as a value of an annotated type; several values are separated by commas.

    >>> value_of("none", int | None), value_of("12", int | None), value_of("0.1,49", list[float])
    (None, 12, [0.1, 49.0])
    """
    origin = get_origin(kind)
    if origin is Annotated:
        return value_of(text, get_args(kind)[0])
    if origin in (Union, types.UnionType):
        members = get_args(kind)
        if type(None) in members and text.lower() == "none":
            return None
        return value_of(text, next(member for member in members if member is not type(None)))
    if origin in (list, tuple, Sequence):
        return [value_of(one.strip(), get_args(kind)[0]) for one in text.split(",")]
    if origin is Literal and text not in get_args(kind):
        raise ValueError(f"one of {', '.join(get_args(kind))}; got {text!r}")
    if kind is bool:
        return _switch(text)
    if kind in _NUMBERS:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{_NUMBERS[kind]}; got {text!r}") from None
    return text


def _switch(text: str) -> bool:
    for value, words in _WORDS.items():
        if text.lower() in words:
            return value
    raise ValueError(f"true or false; got {text!r}")
