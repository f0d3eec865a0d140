"""The packages by which winget installs programs of builds."""

from stoker.knowledge import Row, table


class WindowsPrograms(Row, frozen=True, kw_only=True):
    """The content of windows_programs.toml."""

    package: dict[str, str]


windows_programs = table("windows_programs", WindowsPrograms)
