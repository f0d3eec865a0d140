"""Packages a wheel, so that it works on other machines: reads it, plans and applies."""

import os
from collections.abc import Mapping
from pathlib import Path

from stoker.wheel.engine import Wheel, open_wheel
from stoker.wheel.package.applying import apply_plan
from stoker.wheel.package.built_wheel import BuiltWheel, read_built_wheel
from stoker.wheel.package.closure import Closure, find_closure, to_be_hashed
from stoker.wheel.package.licences import find_licences
from stoker.wheel.package.places import find_search_places
from stoker.wheel.package.planning import make_package_plan
from stoker.wheel.package.providers import Providers, wheel_cuda
from stoker.wheel.package.sources import open_sources
from stoker.wheel.package.values import Packaged, PackageMode, PackagePlan, PackageRequest


def plan_package(wheel: Path, request: PackageRequest) -> PackagePlan:
    """Return what ``package`` would do; nothing is written."""
    with open_wheel(wheel) as opened:
        return _plan(opened, request, os.environ)


def package(
    wheel: Path,
    request: PackageRequest,
    into: Path,
    *,
    force: bool = False,
    notes: Mapping[str, bytes] = {},
) -> tuple[PackagePlan, Packaged]:
    """Write a portable copy of a wheel to the folder ``into``; the original stays unchanged.

    The new wheel appears when it is complete. ``force`` replaces an existing one. ``notes`` are
    files that are added to its dist-info.
    """
    with open_wheel(wheel) as opened:
        plan = _plan(opened, request, os.environ)
        return plan, apply_plan(plan, opened, into, force=force, notes=notes)


def _plan(wheel: Wheel, request: PackageRequest, environment: Mapping[str, str]) -> PackagePlan:
    built = read_built_wheel(wheel)
    closure = _closure(built, request, environment)
    with open_sources() as sources:
        digests = {found.name: sources.digest(found.source) for found in to_be_hashed(closure)}
    licences, notes = find_licences(closure.found.values())
    return make_package_plan(
        built, request, closure=closure, digests=digests, licences=licences, notes=notes
    )


def _closure(built: BuiltWheel, request: PackageRequest, environment: Mapping[str, str]) -> Closure:
    if request.mode is PackageMode.PLAIN:
        return Closure()
    places = find_search_places(request.libraries, built.libraries, built.machine, environment)
    cuda = wheel_cuda(built, request)
    providers = Providers(built, request)
    return find_closure(built, providers, places, cuda=cuda.major if cuda else None)
