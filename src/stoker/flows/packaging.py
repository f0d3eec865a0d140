"""From a wheel as it was built to one that can be given away."""

import os
from collections.abc import Mapping
from pathlib import Path

from stoker.artifact.engine import Wheel, open_wheel
from stoker.deliver.package.applying import apply
from stoker.deliver.package.closure import Closure, gather
from stoker.deliver.package.cuda import wheel_cuda
from stoker.deliver.package.licences import find_licences
from stoker.deliver.package.planning import make_plan
from stoker.deliver.package.providers import Providers
from stoker.deliver.package.shelves import find_shelves
from stoker.deliver.package.stock import open_stock
from stoker.deliver.package.subject import Subject, read_subject
from stoker.deliver.package.taken import to_be_hashed
from stoker.deliver.package.values import Mode, Packaged, PackagePlan, PackageRequest


def plan_package(wheel: Path, request: PackageRequest) -> PackagePlan:
    with open_wheel(wheel) as opened:
        return _plan(opened, request, os.environ)


def package(
    wheel: Path, request: PackageRequest, into: Path, *, force: bool = False
) -> tuple[PackagePlan, Packaged]:
    with open_wheel(wheel) as opened:
        plan = _plan(opened, request, os.environ)
        return plan, apply(plan, opened, into, force=force)


def _plan(wheel: Wheel, request: PackageRequest, environment: Mapping[str, str]) -> PackagePlan:
    subject = read_subject(wheel)
    closure = _closure(subject, request, environment)
    with open_stock() as stock:
        digests = {found.name: stock.digest(found.source) for found in to_be_hashed(closure)}
    licences, notes = find_licences(closure.found.values())
    return make_plan(
        subject, request, closure=closure, digests=digests, licences=licences, notes=notes
    )


def _closure(subject: Subject, request: PackageRequest, environment: Mapping[str, str]) -> Closure:
    if request.mode is Mode.PLAIN:
        return Closure()
    shelves = find_shelves(request.libraries, subject.libraries, subject.machine, environment)
    cuda = wheel_cuda(subject, request)
    providers = Providers(subject, request)
    return gather(subject, providers, shelves, cuda=cuda.major if cuda else None)
