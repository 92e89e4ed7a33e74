"""One configuration for all rooms: a file of TOML, variables of the environment over it, options of a command on top.

The file is the one that `--config` or `PENSTOCK_CONFIG` names, else `penstock.toml` in the working directory, if it is
there. A setting `key` of section `[section]` is overridden by `PENSTOCK_SECTION_KEY`. What cannot be used is refused
before anything is done, with the file or variable, the key, the reason and a remedy.
"""

from __future__ import annotations

import math
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from penstock.cli.settings.options import SETTINGS_FILE
from penstock.cli.settings.sections import SECTIONS, class_of, fields_of, is_section, section_of
from penstock.errors import InvalidInput, NotFound, PermissionDenied

__all__ = ["Settings", "load_settings"]

_PREFIX: Final = "PENSTOCK_"
_FILE_BYTES_MAX: Final = 1 << 20
_WRITABLE_BY_OTHERS: Final = stat.S_IWOTH
# Stands for the value of a secret.
_HIDDEN: Final = "…"

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What was configured, by the path of the key; sections that nobody has named are as they are by default."""

    # (section, key …) to the value and the place that says it.
    said: Mapping[tuple[str, ...], _Said] = field(default_factory=dict)

    def of(self, kind: type[T], **options: Any) -> T:
        """The settings of a class in the table; `options` that are not None come last."""
        section = section_of(kind)
        said = self._values((section,), kind)
        return self._made(section, kind, {**said, **{name: one for name, one in options.items() if one is not None}})

    def given(self, kind: type[Any]) -> dict[str, Any]:
        """Only what was configured of a class."""
        return self._values((section_of(kind),), kind)

    def _values(self, path: tuple[str, ...], kind: type[Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, hint in fields_of(kind).items():
            here = (*path, name)
            if is_section(hint):
                if inner := self._values(here, hint):
                    values[name] = self._made(path[0], hint, inner)
            elif here in self.said:
                values[name] = _converted(self.said[here], hint)
        return values

    def _made(self, section: str, kind: type[T], values: Mapping[str, Any]) -> T:
        """A class that refuses what its settings mean together does not know where they were written."""
        try:
            return kind(**values)
        except InvalidInput as error:
            raise InvalidInput(f"{self._places(section)}{error.what}", error.why, error.remedy) from error

    def _places(self, section: str) -> str:
        """Where a section was written, for an error about several of its settings."""
        places = dict.fromkeys(said.file for path, said in self.said.items() if path[0] == section and said.file)
        return f"{', '.join(places)}: [{section}] " if places else f"[{section}] "


@dataclass(frozen=True, slots=True)
class _Said:
    """A value, and where it was said: `file` when that was one, `place` as an error names it."""

    value: Any
    place: str
    file: str | None = None


def load_settings(file: Path | None, environment: Mapping[str, str], *, folder: Path = Path()) -> Settings:
    """What a file and the environment say; without `file`, that of the default place."""
    default = folder / SETTINGS_FILE
    if file is None and default.is_file():
        _check_owner(default)
        file = default
    said = dict(_in_file(file)) if file is not None else {}
    return Settings({**said, **_in_environment(environment)})


def _in_file(file: Path) -> Iterator[tuple[tuple[str, ...], _Said]]:
    try:
        tables = tomllib.loads(_read(file).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{file} cannot be read as TOML", str(error), "correct the line that is named") from error
    for section, table in tables.items():
        if section not in SECTIONS:
            raise _unknown(f"{file}: [{section}]", "section", section, SECTIONS)
        yield from _in_table(file, (section,), class_of(section), table)


def _in_table(
    file: Path, path: tuple[str, ...], kind: type[Any], table: Any
) -> Iterator[tuple[tuple[str, ...], _Said]]:
    heading = ".".join(path)
    if not isinstance(table, dict):
        raise InvalidInput(
            f"{file}: {heading} = {table!r}", "it is a section, not a value", f"write [{heading}] and keys below it"
        )
    known = fields_of(kind)
    for key, value in table.items():
        if key not in known:
            raise _unknown(f"{file}: [{heading}] {key}", "setting", key, known)
        if is_section(known[key]):
            yield from _in_table(file, (*path, key), known[key], value)
        else:
            shown = _HIDDEN if _is_secret((*path, key)) else repr(value)
            yield (*path, key), _Said(value, f"{file}: [{heading}] {key} = {shown}", str(file))


def _in_environment(environment: Mapping[str, str]) -> dict[tuple[str, ...], _Said]:
    """Variables that are settings. One that is nearly one is refused; others are somebody else's."""
    said: dict[tuple[str, ...], _Said] = {}
    for variable, value in environment.items():
        section = next((name for name in SECTIONS if variable.startswith(f"{_PREFIX}{name.upper()}_")), None)
        if section is None:
            continue
        known = {_variable(path): path for path in _paths((section,), class_of(section))}
        if variable in known:
            shown = _HIDDEN if _is_secret(known[variable]) else value
            said[known[variable]] = _Said(value, f"{variable}={shown}")
        elif near := get_close_matches(variable, known, 1, cutoff=0.9):
            raise InvalidInput(f"{variable} cannot be used", "there is no such setting", f"did you mean {near[0]}?")
    return said


def _paths(path: tuple[str, ...], kind: type[Any]) -> Iterator[tuple[str, ...]]:
    for name, hint in fields_of(kind).items():
        if is_section(hint):
            yield from _paths((*path, name), hint)
        else:
            yield (*path, name)


def _is_secret(path: tuple[str, ...]) -> bool:
    """Whether a setting is one that its class leaves out of what is printed: then no error quotes it either."""
    kind = class_of(path[0])
    for name in path[1:-1]:
        kind = fields_of(kind)[name]
    return is_dataclass(kind) and any(field.name == path[-1] and not field.repr for field in fields(kind))


def _variable(path: tuple[str, ...]) -> str:
    return _PREFIX + "_".join(path).upper()


def _converted(said: _Said, hint: Any) -> Any:
    """A value as its setting's type; what the environment says is text, and a choice is said by its name."""
    # Where nothing is configured, it is not needed.
    import msgspec

    value, from_text = said.value, said.file is None
    if isinstance(hint, type) and issubclass(hint, Enum) and isinstance(value, str):
        value = next((member for member in hint if value.lower() in (member.name.lower(), str(member.value))), value)
    try:
        if isinstance(value, str) and from_text:
            value = float(value) if isinstance(hint, type) and issubclass(hint, float) else _several(value, hint)
        found = msgspec.convert(value, hint, strict=not from_text)
        if isinstance(found, float) and math.isnan(found):
            raise ValueError("NaN is not a number")
        return found
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidInput(f"{said.place} cannot be used", str(error), _remedy(hint)) from error


def _several(text: str, hint: Any) -> Any:
    """A list or a table that the environment gives: as JSON, and a list also with commas between its texts."""
    import msgspec

    kinds = {get_origin(hint), *map(get_origin, get_args(hint))}
    if text.lstrip()[:1] in ("[", "{") and kinds & {tuple, list, dict}:
        return msgspec.json.decode(text)
    if kinds & {tuple, list}:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _remedy(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"use one of {', '.join(member.name.lower() for member in hint)}"
    return "see docs/operating.md for what it means and its default"


def _unknown(where: str, what: str, name: str, known: Mapping[str, Any]) -> InvalidInput:
    near = get_close_matches(name, known, 1)
    remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return InvalidInput(f"{where} cannot be used", f"there is no such {what}", remedy)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(
            f"there is no configuration {file}", "the file does not exist", "name an existing file"
        ) from None
    except IsADirectoryError:
        raise InvalidInput(f"the configuration {file} cannot be read", "it is a folder", "name a file") from None
    except PermissionError as error:
        raise PermissionDenied(f"the configuration {file} cannot be read", str(error.strerror)) from None
    if len(data) > _FILE_BYTES_MAX:
        raise InvalidInput(f"the configuration {file} cannot be used", f"it has more than {_FILE_BYTES_MAX:,} bytes")
    return data


def _check_owner(file: Path) -> None:
    """Nobody named this file: whoever can write here could else say where credentials and documents are sent."""
    status = file.stat()
    if status.st_uid not in (0, os.getuid()) or status.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionDenied(
            f"{file.absolute()} is not used as configuration",
            "it belongs to another user, or everybody may write to it",
            f"name it with --config if you trust it, or run in a folder without {SETTINGS_FILE}",
        )
