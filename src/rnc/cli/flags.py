"""Flags from the fields of a dataclass, and fields from the words that a user typed."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

Folder = Annotated[Path, typer.Argument(help="a run folder", show_default=False)]
Images = Annotated[Path | None, "folder that image file names are relative to"]
Seeds = Annotated[int, typer.Option(min=1, help="how many times, with different seeds")]
SkipBad = Annotated[bool, "leave out broken images"]
Fields = TypeVar("Fields")

_ON = dict.fromkeys(("true", "yes", "on", "1"), True)
_SWITCH = _ON | dict.fromkeys(("false", "no", "off", "0"), False)
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def with_flags(command: Callable[..., None], *classes: Any) -> Callable[..., None]:
    """Give a command one flag per field of some dataclasses, in place of its **options.

    An annotation, of a field or of the command itself, holds the help as text, or a parameter of
    typer's. A parameter that the command has by the name of a field takes its place, with a default
    and a help text of its own, and with the field's type.
    """
    flags = {}
    for name, own in inspect.signature(command).parameters.items():
        if name != "options":
            annotation = _annotation(name, own.annotation)
            flags[name] = own.replace(kind=own.KEYWORD_ONLY, annotation=annotation)
    for cls in classes:
        hints = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            required = field.default is dataclasses.MISSING
            flag = inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required else field.default,
                annotation=_annotation(field.name, hints[field.name]),
            )
            own = flags.setdefault(field.name, flag)
            if own is not flag and get_origin(own.annotation) is Annotated:
                kind, note = get_args(flag.annotation)[0], get_args(own.annotation)[1]
                flags[field.name] = own.replace(annotation=Annotated[kind, note])
    command.__signature__ = inspect.Signature(list(flags.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: flag.annotation for name, flag in flags.items()}
    return command


def _annotation(name: str, hint: Any) -> Any:
    """What typer makes a flag of; one for several values, or for options by name, may repeat."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, note = get_args(hint)
    if _is_mapping(kind):
        option = typer.Option(_flag(name, kind), metavar="KEY=VALUE", help=f"{note}; may repeat")
        return Annotated[list[str] | None, option]
    kind = list[float] | None if Sequence in _origins(kind) else kind
    if isinstance(note, str):
        note = typer.Option(help=f"{note}; may repeat" if list in _origins(kind) else note)
    return Annotated[kind, note]


def _flag(name: str, kind: Any) -> str:
    """The flag of a field; that of a mapping takes one pair at a time, so it has no plural s."""
    return "--" + (name.removesuffix("s") if _is_mapping(kind) else name).replace("_", "-")


def _is_mapping(kind: Any) -> bool:
    return Mapping in _origins(kind)


def _origins(kind: Any) -> list[Any]:
    """The generic types of a union: Sequence for one with Sequence[float]; None for the others."""
    return [get_origin(member) for member in get_args(kind)]


def take(options: dict[str, Any], cls: type[Fields]) -> Fields:
    """The dataclass that the options of a command with its flags fill."""
    values = {}
    for name, kind in get_type_hints(cls).items():
        values[name] = options[name]
        if options[name] is not None and _is_mapping(kind):
            pairs = (pair(_flag(name, kind), text) for text in options[name])
            values[name] = {key: guess(word) for key, word in pairs}
    return cls(**values)


def typed_fields(context: typer.Context, filled: Any) -> dict[str, Any]:
    """The fields of a dataclass from `take` whose flags were typed, even where at the default."""
    names = [field.name for field in dataclasses.fields(filled)]
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    return {name: getattr(filled, name) for name in given}


def typed(fields: Any) -> list[str]:
    """The words that a user would type for a dataclass; what is at its default is left out.

    >>> from rnc.config import FitConfig
    >>> typed(FitConfig(lr=0.1, flip=False, encoder="mlp", head="or", step=[0.5, 1]))
    ['--head', 'or', '--step', '0.5', '--step', '1', '--encoder', 'mlp', '--lr', '0.1', '--no-flip']
    >>> typed(FitConfig(head="huber", head_options={"beta": 0.5}))
    ['--head', 'huber', '--head-option', 'beta=0.5']
    """
    words: list[str] = []
    hints = get_type_hints(type(fields))
    for field in dataclasses.fields(fields):
        value, flag = getattr(fields, field.name), _flag(field.name, hints[field.name])
        if field.default is dataclasses.MISSING:
            words.append(str(value))
        elif value == field.default or value is None:
            continue
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, Mapping):
            for key, one in value.items():
                text = ",".join(map(str, one)) if isinstance(one, tuple) else one
                words += [flag, f"{key}={text}"]
        elif tuple in _origins(hints[field.name]):  # one flag, several words
            words += [flag, *map(str, value)]
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [flag, str(one)]
    return words


def pair(flag: str, text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE, with - in the key as _."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise ValueError(f"{flag} needs KEY=VALUE; got {text!r}.")
    return key.strip().replace("-", "_"), value.strip()


def guess(text: str) -> Any:
    """A word as what it looks like: a number, a switch, numbers with commas between, or text.

    >>> guess("0.5"), guess("true"), guess("0.485,0.456,0.406"), guess("class")
    (0.5, True, (0.485, 0.456, 0.406), 'class')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]


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
        if text.lower() not in _SWITCH:
            raise ValueError(f"true or false; got {text!r}")
        return _SWITCH[text.lower()]
    if kind in _NUMBERS:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{_NUMBERS[kind]}; got {text!r}") from None
    return text
