"""JSON Schemas of what the commands print with ``--json``, generated from the types."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from stoker.model.errors import unknown
from stoker.outside.terminal import JSON_VERSION

# The type of each document: all fields of one type under "", fields of their own under their names.
# A type is `module:Class`, the type of a field `module:Class.field`, and `[...]` a list.
_PLAN = "stoker.model.plan:Plan"
OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "build": {"": "stoker.builds.building:Built"},
    "cache stats": {"": "stoker.model.caching:CacheUse"},
    "cache status": {"": "stoker.model.caching:CacheStatus"},
    "cache wheels": {"wheels": "[stoker.catalogue.values:PublishedWheel]"},
    "catalogue prune": {"": "stoker.catalogue.index:Pruned"},
    "catalogue publish": {"": "stoker.catalogue.publishing:PublishReport"},
    "catalogue select": {"": "stoker.catalogue.choosing:Selection"},
    "clean": {"": "stoker.builds.cleaning:Cleaning"},
    "container list": {"containers": "[stoker.builds.containers.kept_containers:KeptContainer]"},
    "develop": {"": "stoker.builds.building:Built"},
    "diagnose": {"": "stoker.diagnose.values:Diagnosis"},
    "doctor": {"variant": str, "ok": bool, "findings": "[stoker.model.finding:Finding]"},
    "export": {"files": "[stoker.export.exporting:ExportedFile]"},
    "graph": {"": "stoker.report.graphs.analysis:BuildGraph"},
    "history": {"runs": "[stoker.model.runs:Run]"},
    "history RUN": {"steps": "[stoker.model.runs:Attempt]"},
    "inspect": {"": "stoker.model.artifact:ArtifactFacts"},
    "install --locked": {"packages": "[stoker.catalogue.locking:LockedPackage]"},
    "install --slim": {"wheels": "[stoker.catalogue.slim_install:SlimInstalled]"},
    "install --slim --dry-run": {"downloads": "[stoker.catalogue.slim_install:Download]"},
    "install INDEX": {"wheels": "[stoker.catalogue.values:PublishedWheel]"},
    "install INDEX --dry-run": {"": "stoker.catalogue.values:Selection"},
    "install PACKAGE": {
        "found": "[stoker.catalogue.finding:Found]",
        "builds": "[stoker.builds.obtaining:ObtainedBuild]",
        "prewarmed": "[stoker.catalogue.prewarming:Prewarming]",
    },
    "plan --options": {"options": "[stoker.model.source:CMakeOption]"},
    "package": {
        "plan": "stoker.wheel.package.plan:PackagePlan",
        "packaged": "stoker.wheel.package.packaging:Packaged?",  # nothing in a dry run
    },
    "plan": {
        "variant": f"{_PLAN}.variant",
        "label": str,
        "platform": str,
        "recipe": f"{_PLAN}.recipe",
        "source": f"{_PLAN}.source",
        "machine": f"{_PLAN}.machine",
        "environment": dict[str, str],
        "cmake": dict[str, str],
        "origin": dict[str, str],
        "why": dict[str, str],
        "readers": dict[str, str],
        "targets": f"{_PLAN}.targets",
        "commands": f"{_PLAN}.commands",
        "heavy": f"{_PLAN}.heavy",
        "estimate": f"{_PLAN}.estimate",
        "findings": f"{_PLAN}.findings",
        "chain": "stoker.model.caching:Chain",
        "asked": "stoker.ask.values:Asked?",  # with --ask
    },
    "simulate": {
        "trace": str,
        "steps": int,
        "results": "[stoker.model.simulation:SimulationResult]",
    },
    "slim": {"": "stoker.model.slimming:SlimReport"},
    "toolchain list": {"toolchains": "[stoker.builds.toolchains.kept_toolchains:Toolchain]"},
    "verify": {"": "stoker.wheel.verify.tested:Verification", "ok": bool},
}


def schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of what `stoker COMMAND --json` prints."""
    if command not in OUTPUTS:
        raise unknown("output", command, OUTPUTS)
    declared = {name: _type(text) for name, text in OUTPUTS[command].items()}
    (*schemas,), components = msgspec.json.schema_components(
        list(declared.values()), ref_template="#/$defs/{name}"
    )
    properties: dict[str, Any] = {"json_version": {"const": JSON_VERSION}}
    required = ["json_version"]
    for name, found in zip(declared, schemas, strict=True):
        if name:
            properties[name] = found
            required.append(name)
        else:
            whole = components.pop(found["$ref"].rpartition("/")[2])
            properties |= whole["properties"]
            required += whole.get("required", [])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"stoker {command} --json",
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": components,
    }


def _type(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if text.endswith("?"):
        return _type(text[:-1]) | None
    if text.startswith("["):
        return tuple[_type(text[1:-1]), ...]  # type: ignore[misc]
    module, _, path = text.partition(":")
    name, _, field = path.partition(".")
    found = getattr(import_module(module), name)
    if not field:
        return found
    return next(one.type for one in msgspec.structs.fields(found) if one.name == field)
