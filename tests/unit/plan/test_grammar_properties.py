"""Properties of every variant and of every text."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.version import Version

from stoker.knowledge.cpus import cpu_levels, cpu_names, cpu_products
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import cuda_archs, cuda_gpus, generations, gpus, squeeze
from stoker.knowledge.platforms import platforms
from stoker.model.errors import UsageError
from stoker.model.variant import Backend, BuildType, Sanitizer, Variant
from stoker.plan.grammar import canonical, label, parse
from subjects import VARIANTS, gpu, linux

MACHINE = linux(gpus=(gpu("9.0"), gpu("8.6")))


@given(VARIANTS)
def test_a_name_is_read_back_and_a_label_is_a_normalised_local_version(variant: Variant) -> None:
    assert parse(variant.name) == variant
    assert Version(f"1+{label(variant)}").local == label(variant)


@given(VARIANTS)
def test_a_name_does_not_depend_on_case_or_order(variant: Variant) -> None:
    words = variant.name.split("-")
    assert parse(" ".join(reversed(words)).upper()) == variant


@given(st.lists(st.sampled_from(cuda_archs()), min_size=1, max_size=5), st.sampled_from("; ,"))
def test_any_arch_list_is_read(archs: list[str], separator: str) -> None:
    variant = parse(separator.join(archs) + "+PTX")
    assert variant.backend is Backend.CUDA
    assert {target.arch for target in variant.gpus} == set(archs)
    assert [target.arch for target in variant.gpus if target.ptx] == [archs[-1]]


CLAIMS: list[tuple[str, str]] = [
    *((backend.value, f"backend {backend}") for backend in Backend),
    *((squeeze(card), f"gpu {row.arch}") for row in gpus().values() for card in row.names),
    *((squeeze(row.arch), f"gpu {row.arch}") for row in gpus().values() if "." not in row.arch),
    *((squeeze(word), f"generation {word}") for word in generations()),
    *((squeeze(cpu), f"cpu {cpu}") for cpu in cpu_names()),
    *((squeeze(word), f"cpu {row.name}") for row in cpu_levels().values() for word in row.aliases),
    *((squeeze(product), f"cpu {cpu}") for product, cpu in cpu_products().items()),
    *((squeeze(row.name), f"blas {row.name}") for row in blas_libraries().values()),
    *((squeeze(w), f"blas {row.name}") for row in blas_libraries().values() for w in row.aliases),
    *((kind.value.casefold(), f"build type {kind}") for kind in BuildType),
    *((sanitizer.value, f"sanitizer {sanitizer}") for sanitizer in Sanitizer),
    *((word, f"feature {word}") for word in features()),
    *((f"no{word}", f"not feature {word}") for word in features()),
    *((squeeze(str(platform)), f"platform {platform}") for platform in platforms()),
    *((squeeze(w), f"platform {p}") for p, row in platforms().items() for w in row.aliases),
    *((word, "native") for word in ("native", "thismachine")),
    *((word, "filler") for word in ("with", "and", "for", "only", "on", "the", "a")),
]


def test_no_word_is_claimed_with_two_meanings() -> None:
    meanings: dict[str, set[str]] = {}
    for word, meaning in CLAIMS:
        meanings.setdefault(word, set()).add(meaning)
    assert {word: found for word, found in meanings.items() if len(found) > 1} == {}


def test_every_claimed_word_is_read() -> None:
    for word, meaning in CLAIMS:
        if meaning != "filler":
            parse(word, MACHINE)


def test_two_words_side_by_side_in_a_name_are_never_a_third() -> None:
    """The longest run of words wins, so no two parts may together spell another word."""
    flags = [*features(), *(f"no{word}" for word in features())]
    parts: list[list[str]] = [
        [backend.value for backend in Backend],
        [squeeze(row.arch) for row in gpus().values() if "." not in row.arch],
        [squeeze(cpu) for cpu in cpu_names()],
        [squeeze(blas) for blas in blas_libraries()],
        [kind.value.casefold() for kind in BuildType],
        [sanitizer.value for sanitizer in Sanitizer],
        flags,
        flags,
        [squeeze(str(platform)) for platform in platforms()],
    ]
    words = {word for word, _ in CLAIMS}
    for before, after in combinations(parts, 2):
        assert not {one + other for one, other in product(before, after)} & words


WORDS = st.sampled_from(
    [
        *sorted({word for word, _ in CLAIMS}),
        *("sm90", "sm_90a", "sm100f", "ptx", "cu130", "cuda13.0", "rocm6.4", "py312", "9.0+PTX"),
        *("8.6", "sm", "cu", "py3", "xpu2025.1", "no", "python313Packages.pytorch", "compute_80"),
    ]
)
SOUP = st.lists(
    st.tuples(WORDS | st.text(max_size=3), st.sampled_from(["-", "+", " ", ";", ",", "_", "."])),
    max_size=6,
).map(lambda pairs: "".join(word + separator for word, separator in pairs))


def _read(text: str) -> Variant | None:
    try:
        return parse(text, MACHINE)
    except UsageError:
        return None


@given(st.text() | SOUP)
def test_any_text_is_read_or_refused(text: str) -> None:
    variant = _read(text)
    if variant is not None:
        assert canonical(variant) == variant
        assert parse(variant.name) == variant
        assert Version(f"1+{label(variant)}").local == label(variant)


NUMBERS = st.from_regex(
    r"(rocm|xpu20|cu|cuda|py|cp|sm_|compute_)\d{1,5}(\.\d{1,3})?[af]?", fullmatch=True
)


@given(NUMBERS)
def test_any_number_is_read_or_refused(text: str) -> None:
    variant = _read(text)
    if variant is not None:
        assert parse(variant.name) == variant
        assert Version(f"1+{label(variant)}").local == label(variant)


NVIDIA_NAMES = st.sampled_from(
    [card for row in gpus().values() if row.backend is Backend.CUDA for card in row.names]
)
GPU_TEXTS = st.lists(
    st.tuples(NVIDIA_NAMES | WORDS, st.sampled_from(["", "+ptx", " 80GB HBM3"])), max_size=4
).map(lambda pairs: ", ".join(word + added for word, added in pairs))


@given(GPU_TEXTS | SOUP | st.text(max_size=20))
def test_words_of_gpus_alone_mean_what_they_mean_in_a_variant(text: str) -> None:
    try:
        found = cuda_gpus(text)
    except UsageError:
        assert _read(text) is None
        return
    if found is not None:
        read = parse(text)  # a board with a CPU also names the platform
        assert replace(read, platform=None) == Variant(backend=Backend.CUDA, gpus=found)


@given(st.lists(st.sampled_from(cuda_archs()) | NVIDIA_NAMES, min_size=1, max_size=4))
def test_words_of_gpus_need_no_grammar(words: list[str]) -> None:
    assert cuda_gpus(", ".join(words)) == parse(", ".join(words)).gpus
