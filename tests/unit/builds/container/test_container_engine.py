"""Reading the output of `podman info` and `docker info`."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.containers.engine import EngineKind, read_container_host, read_engine
from stoker.model.errors import MissingError


def podman(**host: Any) -> str:
    return json.dumps({"host": {"ociRuntime": {"name": "crun"}, **host}})


def test_podman() -> None:
    told = podman(security={"rootless": True})
    engine = read_engine(EngineKind.PODMAN, "/bin/podman", told, gpus=True)
    assert (engine.runtime, engine.rootless) == ("crun", True)
    assert engine.gpus


def test_docker_needs_a_runtime_for_gpus() -> None:
    facts = {"DefaultRuntime": "runc", "SecurityOptions": ["name=rootless"]}
    engine = read_engine(EngineKind.DOCKER, "docker", json.dumps(facts), gpus=True)
    assert (engine.runtime, engine.rootless) == ("runc", True)
    assert not engine.gpus
    facts["Runtimes"] = {"nvidia": {}}  # type: ignore[assignment]
    assert read_engine(EngineKind.DOCKER, "docker", json.dumps(facts), gpus=True).gpus
    assert not read_engine(EngineKind.DOCKER, "docker", json.dumps(facts), gpus=False).gpus


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps)))
def test_what_is_no_answer_is_said(told: str) -> None:
    with pytest.raises(MissingError, match="podman info"):
        read_engine(EngineKind.PODMAN, "podman", told, gpus=False)


def test_this_host() -> None:
    host = read_container_host()
    assert host.user >= 0
    assert host.open_files is None or host.open_files > 0
