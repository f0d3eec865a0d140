"""Facts about wheels that do not exist, for tests of what follows from them."""

from typing import Any

from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    DeviceCode,
    DeviceKind,
    LibraryFacts,
    TargetKind,
    WheelFacts,
)
from stoker.wheel.inspect.runs_on import served_gpus

_KINDS = {"sm": DeviceKind.CUBIN, "compute": DeviceKind.PTX, "lto": DeviceKind.LTOIR}


def device_code(
    arch: str, compression: Compression = Compression.LZ4, *, linked: bool = True, **changes: int
) -> DeviceCode:
    numbers = {"size_bytes": 1000, "count": 2, "unpacked_bytes": 3000, **changes}
    return DeviceCode(
        kind=_KINDS[arch.partition("_")[0]],
        arch=arch,
        compression=(compression,),
        section=".nv_fatbin" if linked else "__nv_relfatbin",
        linked=linked,
        **numbers,
    )


def wheel_facts(name: str = "mill", version: str = "1.2", **changes: Any) -> WheelFacts:
    values = {"tags": ("py3-none-any",), "members": 9, "unpacked_bytes": 9, **changes}
    return WheelFacts(name=name, version=version, **values)


def artifact(*libraries: LibraryFacts, **changes: Any) -> ArtifactFacts:
    values: dict[str, Any] = {
        "path": "mill.whl",
        "kind": TargetKind.WHEEL,
        "size_bytes": 9,
        "wheel": wheel_facts(),
        "dependencies": (),
        "unresolved": (),
        "runs_on": served_gpus(libraries),
        **changes,
    }
    return ArtifactFacts(libraries=libraries, **values)
