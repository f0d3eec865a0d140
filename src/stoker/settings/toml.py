"""Reads stoker.toml: defaults, variants and other tables, each value with its line.

Checks keys and types, not what the values mean.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from stoker.model.errors import UsageError, unknown
from stoker.model.recipe import ProjectRecipe
from stoker.model.value import Value
from stoker.outside.looking import is_file
from stoker.settings.declared import OPTIONS, Declared, SettingKind
from stoker.settings.recipe_files import RECIPES, read_recipe_tables, read_toml
from stoker.settings.tables import InstallSettings, Prices, read_install, read_prices
from stoker.settings.trust import is_safe, text_digest

FILE_NAME = "stoker.toml"
_INSTALL = "install"
_TABLES = ("defaults", "variants", "prices", _INSTALL, RECIPES)
_ENTRY_KEYS = (*OPTIONS, "features", "define", "description")
_TYPES: dict[SettingKind, tuple[tuple[type, ...], str]] = {
    SettingKind.TEXT: ((str,), "text in quotes"),
    SettingKind.SIZE: ((str, int), 'an amount of memory, such as "8G"'),
    SettingKind.SIZE_OR_NONE: ((str, int), 'an amount of memory, such as "2G", or 0'),
    SettingKind.COUNT: ((int,), "a whole number"),
    SettingKind.DURATION: ((str,), 'a time, such as "5h30m"'),
    SettingKind.DURATION_OR_NONE: ((str, int), 'a time, such as "2m", or 0'),
    SettingKind.SWITCH: ((bool,), "true or false"),
}


def own_prices() -> Prices:
    """Return the prices of the stoker.toml of this folder, if it has any."""
    found = find_file(Path.cwd())
    return read_file(found).prices if found else Prices()


class LocatedValue(Value, frozen=True, kw_only=True):
    """A value as text, and its place, such as ``stoker.toml:12``."""

    value: str
    where: str


class TomlTable(Value, frozen=True, kw_only=True):
    """``[defaults]`` or one table of ``[variants]``."""

    where: str
    values: dict[str, LocatedValue] = {}
    features: tuple[LocatedValue, ...] = ()
    pythons: tuple[LocatedValue, ...] = ()  # of a matrix; one build takes the first
    defines: dict[str, LocatedValue] = {}
    description: str = ""


class SettingsFile(Value, frozen=True, kw_only=True):
    path: str
    digest: str  # of its content
    defaults: TomlTable
    variants: dict[str, TomlTable]
    prices: Prices = Prices()
    recipes: tuple[ProjectRecipe, ...] = ()
    install: InstallSettings = InstallSettings()

    @property
    def recipes_at(self) -> LocatedValue:
        return LocatedValue(value="", where=f"[[{RECIPES}]] of {Path(self.path).name}")

    @property
    def install_at(self) -> LocatedValue:
        return LocatedValue(value="", where=f"[{_INSTALL}] of {Path(self.path).name}")


def find_files(start: Path) -> Iterator[Path]:
    """Yield the stoker.toml of a folder and of the folders above it, the nearest first."""
    for folder in (start, *start.parents):
        if is_file(folder / FILE_NAME):
            yield folder / FILE_NAME


def find_file(start: Path) -> Path | None:
    """Return the nearest stoker.toml at or above a folder that no other user can have written."""
    return next((path for path in find_files(start) if is_safe(path)), None)


def variant_names(path: Path | None, only: str = "") -> tuple[str, ...]:
    """Return the variants of a stoker.toml whose name contains ``only`` or fits that pattern."""
    names = tuple(read_file(path).variants) if path else ()
    if not path or not names:
        raise UsageError(
            f"{path} has no variants"
            if path
            else "there is no stoker.toml with variants here or in a folder above",
            hints=['write tables such as [variants.fleet] with variant = "cu130-sm80+sm90"'],
        )
    pattern = only if re.search(r"[*?\[]", only) else f"*{only}*"
    if found := tuple(name for name in names if fnmatchcase(name, pattern)):
        return found
    raise unknown("variant", only, names, where=path.name)


def read_file(path: Path) -> SettingsFile:
    text, content = read_toml(path)
    reader = _Reader(path.name, text)
    for key in content:
        if key not in _TABLES:
            raise unknown("key", key, _TABLES, where=reader.where((key,)))
    variants = reader.table(content.get("variants", {}), ("variants",))
    return SettingsFile(
        path=str(path),
        digest=text_digest(text),
        defaults=reader.entry(content.get("defaults", {}), ("defaults",)),
        variants={name: reader.entry(v, ("variants", name)) for name, v in variants.items()},
        prices=read_prices(content.get("prices", {}), reader.where(("prices",))),
        recipes=read_recipe_tables(content.get(RECIPES, []), reader.where((RECIPES,))),
        install=read_install(content.get(_INSTALL, {}), reader.where((_INSTALL,))),
    )


class _Reader:
    """Checks parsed tables and finds the line of each key in the text."""

    def __init__(self, name: str, text: str):
        self._name = name
        self._lines: dict[tuple[str, ...], int] = {}  # line of each table and key
        for number, path in _paths(_without_long_texts(text).splitlines()):
            self._lines.setdefault(path, number)

    def where(self, path: tuple[str, ...]) -> str:
        """Return ``file:line`` of the deepest part of a key path that is found in the text."""
        for length in range(len(path), 0, -1):
            if line := self._lines.get(path[:length]):
                return f"{self._name}:{line}"
        return self._name

    def table(self, value: Any, path: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong_type(path, "a table")
        return value

    def entry(self, value: Any, path: tuple[str, ...]) -> TomlTable:
        table = self.table(value, path)
        for key in table:
            if key not in _ENTRY_KEYS:
                raise unknown("key", key, _ENTRY_KEYS, where=self.where((*path, key)))
        defines = self.table(table.get("define", {}), (*path, "define"))
        pythons = self._pythons(table, (*path, "python"))
        return TomlTable(
            where=self.where(path),
            values={
                key: self._setting(option, table[key], (*path, key))
                for key, option in OPTIONS.items()
                if key in table and key != "python"
            }
            | ({"python": pythons[0]} if pythons else {}),
            pythons=pythons,
            features=self._words(table.get("features", []), (*path, "features")),
            defines={key: self._scalar(defines[key], (*path, "define", key)) for key in defines},
            description=self._text(table.get("description", ""), (*path, "description")).value,
        )

    def _pythons(self, table: Mapping[str, Any], path: tuple[str, ...]) -> tuple[LocatedValue, ...]:
        """Return the versions of Python, which are a text or a list of texts."""
        given = table.get("python", [])
        if isinstance(given, list):
            return self._words(given, path)
        return (self._setting(OPTIONS["python"], given, path),)

    def _setting(self, option: Declared, value: Any, path: tuple[str, ...]) -> LocatedValue:
        types, wanted = _TYPES[option.kind]
        if type(value) not in types:
            raise self._wrong_type(path, wanted)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return LocatedValue(value=text, where=self.where(path))

    def _text(self, value: Any, path: tuple[str, ...]) -> LocatedValue:
        if not isinstance(value, str):
            raise self._wrong_type(path, "text in quotes")
        return LocatedValue(value=value, where=self.where(path))

    def _words(self, value: Any, path: tuple[str, ...]) -> tuple[LocatedValue, ...]:
        if not isinstance(value, list):
            raise self._wrong_type(path, "a list of words")
        return tuple(self._text(item, path) for item in value)

    def _scalar(self, value: Any, path: tuple[str, ...]) -> LocatedValue:
        if isinstance(value, bool):
            value = "ON" if value else "OFF"
        if not isinstance(value, str | int | float):
            raise self._wrong_type(path, "text, a number or true/false")
        return LocatedValue(value=str(value), where=self.where(path))

    def _wrong_type(self, path: tuple[str, ...], wanted: str) -> UsageError:
        return UsageError(f"'{'.'.join(path)}' must be {wanted}", where=self.where(path))


def _paths(lines: Iterable[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the number and the key path of each line that opens a table or sets a key."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(lines, start=1):
        line = line.strip()
        if header := re.match(r"\[+([^\]]+)\]", line):
            table = _key_path(header[1])
            yield number, table
        elif assignment := re.match(r"([^#=\[\]]+)=", line):
            yield number, (*table, *_key_path(assignment[1]))


def _without_long_texts(text: str) -> str:
    """Return the text with multi-line strings emptied, since their lines are not keys."""
    long_text = re.compile(r'""".*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
    return long_text.sub(lambda found: "\n" * found[0].count("\n"), text)


def _key_path(text: str) -> tuple[str, ...]:
    """Split a dotted key such as ``variants."h 100".define`` into its parts."""
    parts = re.findall(r"\"([^\"]*)\"|'([^']*)'|([^.\s]+)", text)
    return tuple(next(group for group in part if group) for part in parts if any(part))
