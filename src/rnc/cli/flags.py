"""Make flags from the fields of a dataclass, and fill its fields from what a user typed."""

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

_LISTED = {
    "": "out target images preset scheme encoder epochs batch_size image_size seed device",
    "Data": """image_column feature_column exclude_column split_column group_column subgroup_column
        weight_column fractions split_seed fold calibration_share decimal drop_missing unlabelled
        partial_labels upper_column event_column skip_bad fit channels root dataset_option""",
    "Method": """objective head head_options low high step label_distance period similarity
        temperature positives rnc_weight teacher teacher_margin contrast_temperature projection_size
        prototypes regularizer regularizer_weight lds c_mixup mixup_alpha mixup_bandwidth
        original""",
    "Training": """pretrained weights freeze frozen_views encoder_from head_epochs head_batch_size
        head_solver head_lr head_weight_decay balance oversample optimizer lr lr_decay layer_decay
        warm_up weight_decay average keep accumulate queue chunk clip""",
    "Augmentation": """views crop crop_scale erase flip color grayscale augment_options
        test_views""",
    "Speed": "precision compile cuda_graphs resident channels_last",
    "Output": "resume overwrite track",
}
PANELS = {panel: names.split() for panel, names in _LISTED.items()}
"""The panels of the help and the flags in each, by field name. "" is the first panel, Options."""

DATA_FILES = ".csv, .tsv, .xlsx, .parquet, .feather, .jsonl or .npz"
Folder = Annotated[Path, typer.Argument(help="a run folder", show_default=False)]
Run = Annotated[str, typer.Argument(help="a run folder, or hf://OWNER/NAME", show_default=False)]
Images = Annotated[Path | None, "folder with the image or scan files that the data name"]
Seeds = Annotated[int, typer.Option(min=1, help="train each method this many times")]
Folds = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="cross-validate: train every method once per fold, and pool the errors of all rows",
    ),
]
Track = Annotated[list[str] | None, "also log the training to tensorboard, mlflow or wandb"]
SkipBad = Annotated[bool, "leave out broken images or scans"]
Fields = TypeVar("Fields")

_DEFAULT_PANELS = {"DataFlags": "Data", "FitConfig": "Training"}
"""The panel of a field that PANELS does not list, by its class."""
_EMPTY = inspect.Parameter.empty
_LONGEST_TYPE = 18
"""The help lists the choices of a flag as its type only up to this many characters."""

_ON = dict.fromkeys(("true", "yes", "on", "1"), True)
_SWITCH = _ON | dict.fromkeys(("false", "no", "off", "0"), False)
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def with_flags(
    command: Callable[..., None], *classes: Any, hidden: Sequence[str] = ()
) -> Callable[..., None]:
    """The command with one flag per field of some dataclasses, in place of its **options.

    The annotation of a field, or of a parameter of the command, holds the help text or a typer
    option. If the command has a parameter with the name of a field, the flag takes its default and
    help from the parameter and its type from the field. `PANELS` says where the help shows a flag.
    The help leaves out the flags in `hidden`.
    """
    own = inspect.signature(command).parameters.values()
    flags = {flag.name: flag.replace(kind=flag.KEYWORD_ONLY) for flag in own}
    flags.pop("options", None)
    panels = dict.fromkeys(flags, "")
    for cls in classes:
        for flag in _of_fields(cls):
            panels.setdefault(flag.name, _DEFAULT_PANELS.get(cls.__name__, ""))
            first = flags.setdefault(flag.name, flag)
            if first is not flag and get_origin(first.annotation) is Annotated:
                kind, note = get_args(flag.annotation)[0], get_args(first.annotation)[1]
                flags[flag.name] = first.replace(annotation=Annotated[kind, note])
    if classes:
        places = {name: (panel, n) for panel in PANELS for n, name in enumerate(PANELS[panel])}
        panels |= {name: places[name][0] for name in flags if name in places}
        order = {name: places.get(name, ("", len(places)))[1] for name in flags}
        order |= dict.fromkeys(inspect.signature(command).parameters, -1)  # the command's own first
        ranks = list(PANELS)
        names = sorted(flags, key=lambda name: (ranks.index(panels[name]), order[name]))
        flags = {name: flags[name] for name in names}

    @functools.wraps(command)
    def flagged(*context: Any, **options: Any) -> None:
        command(*context, **options)

    for name, flag in flags.items():
        annotation = _annotation(flag, panels[name], name in hidden)
        flags[name] = flag.replace(annotation=annotation)
    flagged.__signature__ = inspect.Signature(list(flags.values()))  # type: ignore[attr-defined]
    flagged.__annotations__ = {name: flag.annotation for name, flag in flags.items()}
    return flagged


def _of_fields(cls: Any) -> Iterator[inspect.Parameter]:
    """A keyword parameter for each field of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_EMPTY if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )


def _annotation(flag: inspect.Parameter, panel: str, hidden: bool) -> Any:
    """The annotation that typer needs for a flag. Sequences and mappings become flags to repeat."""
    if get_origin(flag.annotation) is not Annotated:
        return flag.annotation
    kind, note = get_args(flag.annotation)
    if isinstance(note, ArgumentInfo):
        return flag.annotation
    note = _option(flag, kind, note) if isinstance(note, str) else copy.copy(note)
    note.metavar = _type_word(kind) if note.metavar is None else note.metavar
    note.rich_help_panel, note.hidden = panel or None, hidden
    if _is_mapping(kind):
        kind = list[str] | None
    elif Sequence in _origins(kind):
        kind = list[float] | None
    return Annotated[kind, note]


def _option(flag: inspect.Parameter, kind: Any, text: str) -> Any:
    """The typer option for a flag, with the default and "may repeat" added to its help text."""
    if kind is bool:
        words = [_flag(flag.name, kind)] if flag.default is False else []
        return typer.Option(*words, help=text, metavar="", show_default=False)
    if {list, Sequence, Mapping} & {get_origin(kind), *_origins(kind)}:
        text += "; may repeat"
    if flag.default not in (None, "auto", "none", _EMPTY):
        text += f"; default: {flag.default}"
    words = [_flag(flag.name, kind)] if _is_mapping(kind) else []
    return typer.Option(*words, help=text, show_default=False)


def _type_word(kind: Any) -> str:
    """What the help calls a type: its choices if they are short, else a word.

    >>> [_type_word(kind) for kind in (int, float | None, list[str] | None, Literal["a", "b"])]
    ['INT', 'NUMBER', 'NAME', 'a|b']
    """
    if _is_mapping(kind):
        return "KEY=VALUE"
    if get_origin(kind) in (Union, types.UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        return _type_word(members[0])
    if get_origin(kind) is Literal:
        choices = "|".join(get_args(kind))
        return choices if len(choices) <= _LONGEST_TYPE else "NAME"
    if get_origin(kind) in (list, Sequence):
        return _type_word(get_args(kind)[0])
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "NAME")


def _flag(name: str, kind: Any) -> str:
    """The flag of a field. A mapping's flag takes one pair at a time, so it loses the plural s."""
    return "--" + (name.removesuffix("s") if _is_mapping(kind) else name).replace("_", "-")


def _is_mapping(kind: Any) -> bool:
    return Mapping in _origins(kind)


def _origins(kind: Any) -> list[Any]:
    """The generic type of each member of a union, such as Sequence for Sequence[float], or None."""
    return [get_origin(member) for member in get_args(kind)]


def take(options: dict[str, Any], cls: type[Fields]) -> Fields:
    """The dataclass, filled with the options of a command that has its flags."""
    return cls(**_values(options, cls))


def _values(options: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """The values of the fields of `cls`, with KEY=VALUE pairs collected into mappings."""
    values = {}
    for name, kind in get_type_hints(cls).items():
        values[name] = options[name]
        if options[name] is not None and _is_mapping(kind):
            pairs = (pair(_flag(name, kind), text) for text in options[name])
            values[name] = {key: guess(word) for key, word in pairs}
    return values


def typed_fields(context: typer.Context, filled: Any) -> dict[str, Any]:
    """The fields of a dataclass from `take` whose flags were typed, even if at their defaults."""
    names = [field.name for field in dataclasses.fields(filled)]
    return {name: getattr(filled, name) for name in names if _was_typed(context, name)}


def typed_values(context: typer.Context, options: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """As `typed_fields`, but without creating the dataclass, whose checks might raise."""
    values = _values(options, cls)
    return {name: value for name, value in values.items() if _was_typed(context, name)}


def _was_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typed(fields: Any) -> list[str]:
    """The words that a user would type for a dataclass, without fields at their defaults.

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
    """The key and the value of KEY=VALUE, with - in the key replaced by _."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise ValueError(f"{flag} needs KEY=VALUE; got {text!r}.")
    return key.strip().replace("-", "_"), value.strip()


def guess(text: str) -> Any:
    """The value that a word looks like: a number, a bool, several numbers, or text.

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
    """A word as a value of an annotated type. Commas separate several values.

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
