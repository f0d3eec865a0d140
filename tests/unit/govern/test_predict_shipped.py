"""Prediction of steps that were never measured: shipped figures of kinds and of known sources."""

import pytest

from governed_steps import GB, row, step
from stoker.govern.policy.predict import Predictor
from stoker.knowledge.steps import prior_of, priors, usual_seconds
from stoker.model.govern import PARTS, Basis, Role, Step


@pytest.mark.parametrize("role", Role)
def test_every_role_has_a_shipped_figure_for_any_source(role: Role) -> None:
    assert prior_of(step("any/thing", role=role)).peak > 0


def test_shipped_figures_make_sense() -> None:
    for figure in priors():
        assert 0 < figure.peak <= figure.high
        assert figure.basis


@pytest.mark.parametrize(
    ("source", "least"),
    [
        ("hopper/instantiations/flash_fwd_hdim128_bf16_sm90.cu", 17),
        ("csrc/flash_attn/src/flash_bwd_hdim256_bf16_sm80.cu", 6.6),
        ("csrc/flash_attn/src/flash_fwd_hdim192_bf16_sm80.cu", 4.3),
        ("csrc/ops/scale.cu", 1),
    ],
)
def test_known_kernels_are_not_underrated(source: str, least: float) -> None:
    assert prior_of(step(source, role=Role.CUDA)).high >= least * GB


LARGE, SMALLER = "torch/csrc/jit/python/init.cpp", "torch/csrc/autograd/init.cpp"


@pytest.mark.parametrize("tree", ["", "pytorch/", "/home/someone/src/torch-2.9/"])
def test_a_first_build_knows_the_sources_of_a_well_known_project(tree: str) -> None:
    known = Predictor().predict(step(tree + LARGE))
    assert (known.basis, known.learned) == (Basis.KNOWN, True)
    assert known.peak > 1.5 * GB
    assert known.seconds
    assert known.seconds > 30
    assert usual_seconds(Role.CXX, tree + LARGE) == known.seconds


def test_a_source_that_is_only_named_alike_is_unknown() -> None:
    other = Predictor().predict(step("csrc/jit/python/init.cpp"))
    assert other.basis is Basis.PRIOR
    assert Predictor().predict(step(LARGE, role=Role.CUDA)).basis is Basis.PRIOR


def test_a_first_build_knows_kernels_of_any_project_that_has_them() -> None:
    def kernel(name: str, archs: tuple[str, ...] = ("90",)) -> Step:
        source = f"csrc/flash_attn/src/{name}_sm80.cu"
        return step(source, role=Role.CUDA, archs=archs, threads=len(archs))

    predictor = Predictor()
    known = predictor.predict(kernel("flash_bwd_hdim128_fp16"))
    assert (known.basis, len(known.profile), max(known.profile)) == (Basis.KNOWN, PARTS, 100)
    assert known.fall  # what follows cicc's peak needs much less
    both = predictor.predict(kernel("flash_bwd_hdim128_fp16", ("80", "90")))
    assert both.peak == pytest.approx(2 * known.peak)
    assert predictor.predict(kernel("flash_bwd_hdim128_new")).basis is Basis.PRIOR
    for _ in range(12):
        predictor.learn(row(step(SMALLER), 4 * GB))
    assert predictor.predict(kernel("flash_bwd_hdim128_fp16")).peak == known.peak


def test_shipped_figures_follow_the_compiler_of_this_build() -> None:
    predictor = Predictor()
    before = predictor.predict(step(LARGE)).peak
    shipped = predictor.predict(step(SMALLER)).peak
    for _ in range(12):
        predictor.learn(row(step(SMALLER), 1.5 * shipped))
    assert predictor.predict(step(LARGE)).peak == pytest.approx(1.5 * before)
    predictor.learn(row(step(LARGE), 1.1 * GB))
    assert predictor.predict(step(LARGE)).basis is Basis.EXACT
