"""Values of settings from the default, stoker.toml, the environment and the command line.

Each value remembers its origin.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from stoker.model.errors import UsageError, nearest, unknown
from stoker.model.recipe import ProjectRecipe
from stoker.model.setting import Origin, OriginKind
from stoker.model.value import Value, byte_count, count_of, second_count
from stoker.outside.folders import current_folder
from stoker.settings.declared import OPTIONS, CommandLine, Declared, SettingKind
from stoker.settings.recipe_files import read_recipe_file
from stoker.settings.tables import InstallSettings
from stoker.settings.toml import (
    LocatedValue,
    SettingsFile,
    TomlTable,
    find_file,
    find_files,
    read_file,
)
from stoker.settings.trust import danger, is_trusted

_PREFIX = "STOKER_"
# Variables that are not settings: of the user, and of the programs of a governed build.
_OWN_VARIABLES = frozenset(
    [
        "COMPILERS",
        "CUSTOM",
        "GIT_PASSWORD",
        "GIT_USER",
        "GOVERNOR_TIMEOUT",
        "GOVERN_CUSTOM",
        "HOME",
        "LAUNCHER",
        "LEFT_OUT_TARGETS",
        "LOCKS",
        "PROCESS",
        "RUN",
        "SCRATCH",
        "SLOTS",
        "SOCKET",
        "STEP",
        "VIA_LAUNCHER",
        "WORK",
        "WRAPPED",
        "WRAPPER",
    ]
)
_MISSPELT = 0.8  # similarity from which a name is taken for a misspelt one
_SWITCHES = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)
_LEAST_MEMORY = 1024**2  # less is a number without its unit: --memory 8


def _memory(text: str) -> int | None:
    found = byte_count(text) or 0
    return found if found >= _LEAST_MEMORY else None


# For each type of value: the parser, which returns None for anything else, its name, an example.
_KINDS: dict[SettingKind, tuple[Callable[[str], float | bool | None], str, str]] = {
    SettingKind.SIZE: (_memory, "an amount of memory from 1M on", "8G"),
    SettingKind.SIZE_OR_NONE: (
        lambda text: 0 if text == "0" else _memory(text),
        "an amount of memory from 1M on, or 0",
        "2G",
    ),
    SettingKind.COUNT: (lambda text: count_of(text) or None, "a number from 1 on", "4"),
    SettingKind.DURATION: (lambda text: second_count(text) or None, "a time", "5h30m"),
    SettingKind.DURATION_OR_NONE: (second_count, "a time, or 0", "2m"),
    SettingKind.SWITCH: (lambda text: _SWITCHES.get(text.lower()), "true or false", "true"),
}


class OptionValue(Value, frozen=True, kw_only=True):
    value: str
    origin: Origin


class UserOptions(Value, frozen=True, kw_only=True):
    """``values`` by name of the setting. Features and defines are ordered, weakest origin first."""

    values: dict[str, OptionValue] = {}
    features: tuple[OptionValue, ...] = ()
    defines: dict[str, OptionValue] = {}
    variants: tuple[str, ...] = ()  # the names in stoker.toml
    file: str | None = None  # the stoker.toml in force
    warnings: tuple[str, ...] = ()  # about files and settings that are ignored
    recipes: tuple[ProjectRecipe, ...] = ()  # of stoker.toml and of --recipe
    install: InstallSettings = InstallSettings()

    def text(self, name: str) -> str | None:
        found = self.values.get(name)
        return found.value if found else None

    def value(self, name: str) -> str | float | bool | None:
        """Return a setting's value as its declared type; raise UsageError if it is not one."""
        found = self.values.get(name)
        return None if found is None else _parsed(OPTIONS[name], found)


def read_user_options(
    said: CommandLine, environment: Mapping[str, str] = os.environ
) -> UserOptions:
    """Gather all values; stoker.toml is that of this folder, of one above, or of the source."""
    source = said.options.get("source") or environment.get(OPTIONS["source"].variable)
    starts = [current_folder(), *([Path(source).absolute()] if source else [])]
    path = Path(said.file) if said.file else next(filter(None, map(find_file, starts)), None)
    file = read_file(path) if path else None
    refused = _refused(file) if file else ()
    chosen = gather(
        file=_without(file, refused) if file else None,
        environment=environment,
        command_line=said.options,
        features=said.features,
        defines=said.defines,
    )
    warnings = [] if said.file else list(_unsafe_files(starts, until=path))
    if file and refused:
        places = ", ".join(dict.fromkeys(found.where for found in refused))
        why = f"a setting that starts a program or reaches the network, and {file.path} is not"
        trusting = f"`stoker plan --trust {shlex.quote(file.path)}` trusts it"
        warnings.append(f"{places}: ignored: {why} trusted; {trusting}")
    chosen = replace(chosen, warnings=tuple(warnings))
    if own := chosen.text("recipe"):
        recipes = read_recipe_file(Path(own).expanduser())
        chosen = replace(chosen, recipes=(*recipes, *chosen.recipes))
    return chosen


def _refused(file: SettingsFile) -> tuple[LocatedValue, ...]:
    """Return the settings that start programs or reach the network, of a file that the user has
    not trusted.
    """
    found = tuple(
        located
        for table in (file.defaults, *file.variants.values())
        for name, located in table.values.items()
        if OPTIONS[name].reaches_out
        or (name == "source" and not _is_local(located.value))
        or (name == "python" and "/" in located.value)  # a program that is run
    )
    if file.recipes:  # they set environment variables and may name commands
        found += (file.recipes_at,)
    if file.install != InstallSettings():  # keys, too: a wrong one would pass for the user's
        found += (file.install_at,)
    return () if not found or is_trusted(Path(file.path), file.digest) else found


def _is_local(source: str) -> bool:
    """Return whether a source is a folder or an archive here, and no URL; any other is fetched."""
    try:
        return ":" not in source and Path(source).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _without(file: SettingsFile, refused: tuple[LocatedValue, ...]) -> SettingsFile:
    def cut(table: TomlTable) -> TomlTable:
        kept = {name: found for name, found in table.values.items() if found not in refused}
        return replace(table, values=kept)

    tables = {name: cut(table) for name, table in file.variants.items()}
    recipes = () if file.recipes_at in refused else file.recipes
    install = InstallSettings() if file.install_at in refused else file.install
    return replace(
        file, defaults=cut(file.defaults), variants=tables, recipes=recipes, install=install
    )


def _unsafe_files(starts: Iterable[Path], *, until: Path | None) -> tuple[str, ...]:
    """Return a warning for each stoker.toml that was passed over because of who can write it."""
    found: dict[Path, str] = {}
    for start in starts:
        for path in find_files(start):
            if path == until:
                return tuple(found.values())
            found[path] = f"{path} is ignored: {danger(path)}"
    return tuple(found.values())


def gather(
    *,
    file: SettingsFile | None,
    environment: Mapping[str, str],
    command_line: Mapping[str, str],
    features: Iterable[str] = (),
    defines: Mapping[str, str] = {},
) -> UserOptions:
    """Return the value of each setting: a later one of default, file, environment and command
    line replaces an earlier one.
    """
    values = {
        option.name: OptionValue(value=option.default, origin=Origin(kind=OriginKind.DEFAULT))
        for option in OPTIONS.values()
        if option.default is not None
    }
    _check_names(environment)
    chosen = UserOptions(values=values)
    if file:
        chosen = replace(
            _with_table(chosen, file.defaults),
            variants=tuple(file.variants),
            recipes=file.recipes,
            install=file.install,
            file=file.path,
        )
    chosen = _with_values(
        chosen,
        {
            name: OptionValue(
                value=environment[option.variable],
                origin=Origin(kind=OriginKind.ENVIRONMENT, where=option.variable),
            )
            for name, option in OPTIONS.items()
            if environment.get(option.variable)
        },
    )
    origin = Origin(kind=OriginKind.COMMAND_LINE)
    chosen = _with_values(
        chosen,
        {name: OptionValue(value=text, origin=origin) for name, text in command_line.items()},
    )
    if file:
        chosen = _with_named_variant(chosen, file)
    return replace(
        chosen,
        features=(*chosen.features, *(OptionValue(value=f, origin=origin) for f in features)),
        defines=chosen.defines
        | {name: OptionValue(value=value, origin=origin) for name, value in defines.items()},
    )


def _check_names(environment: Mapping[str, str]) -> None:
    """Refuse a variable whose name is almost that of a setting. stoker itself uses others."""
    settings = {option.variable.removeprefix(_PREFIX): option for option in OPTIONS.values()}
    for variable in environment:
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in settings or name in _OWN_VARIABLES:
            continue
        if near := nearest(name, settings, count=1, cutoff=_MISSPELT):
            raise UsageError(
                f"there is no setting {variable}",
                hints=[f"did you mean {settings[near[0]].variable}? Else unset {variable}"],
                where="environment",
            )


def _with_values(chosen: UserOptions, values: Mapping[str, OptionValue]) -> UserOptions:
    return replace(chosen, values={**chosen.values, **values})


def _with_table(chosen: UserOptions, table: TomlTable) -> UserOptions:
    return replace(
        chosen,
        values=chosen.values | {name: _from_file(found) for name, found in table.values.items()},
        features=(*chosen.features, *map(_from_file, table.features)),
        defines=chosen.defines | {name: _from_file(found) for name, found in table.defines.items()},
    )


def _from_file(found: LocatedValue) -> OptionValue:
    return OptionValue(value=found.value, origin=Origin(kind=OriginKind.FILE, where=found.where))


def _with_named_variant(chosen: UserOptions, file: SettingsFile) -> UserOptions:
    """Replace a variant that is a name from the file by that table.

    Values from the environment and the command line take precedence over the table.
    """
    table = file.variants.get(chosen.text("variant") or "")
    if table is None:
        return chosen
    if "variant" not in table.values:
        default = OptionValue(
            value=OPTIONS["variant"].default or "", origin=Origin(kind=OriginKind.DEFAULT)
        )
        named = file.defaults.values.get("variant")
        chosen = _with_values(chosen, {"variant": _from_file(named) if named else default})
    stronger = {
        name: found
        for name, found in chosen.values.items()
        if name != "variant" and found.origin.kind.rank > OriginKind.FILE.rank
    }
    return _with_values(_with_table(chosen, table), stronger)


def _parsed(option: Declared, found: OptionValue) -> str | float | bool:
    text = found.value
    where = None if found.origin.kind is OriginKind.COMMAND_LINE else str(found.origin)
    if option.choices and text not in option.choices:
        hint = f"choose from {', '.join(option.choices)}"
        raise unknown(f"value of {option.flag}", text, option.choices, where=where, hint=hint)
    if option.kind is SettingKind.TEXT:
        return text
    parse, described, example = _KINDS[option.kind]
    parsed = parse(text)
    if parsed is None:
        hints = [f"for example {example}"]
        raise UsageError(f"{option.flag} {text}: not {described}", hints=hints, where=where)
    return parsed
