"""Finding sources that are generated before compilation."""

from stoker.source.ninja import Edge, generated_sources

CUSTOM = "CUSTOM_COMMAND"
COMPILE = "CXX_COMPILER__core_unscanned_Release"


def edge(rule: str, output: str, *needs: str, after: tuple[str, ...] = ()) -> Edge:
    return Edge(outputs=(output,), rule=rule, needs=needs, after=after)


def test_what_scripts_make_of_what_scripts_made() -> None:
    edges = [
        edge(CUSTOM, "list.inc", "list.py"),
        edge(CUSTOM, "table.cpp", "table.py", "list.inc"),
        edge(COMPILE, "table.o", "table.cpp"),
        edge("phony", "all", "table.o"),
    ]
    assert generated_sources(edges, "all") == ("list.inc", "table.cpp")


def test_a_generator_that_is_compiled_first_is_left_out() -> None:
    edges = [
        edge(COMPILE, "protoc.o", "protoc.cpp"),
        edge("CXX_EXECUTABLE_LINKER__protoc_Release", "protoc", "protoc.o"),
        edge(CUSTOM, "message.cpp", "message.proto", after=("protoc",)),
        edge(CUSTOM, "plain.h", "plain.py"),
        edge("phony", "all", "message.cpp", "plain.h"),
    ]
    assert generated_sources(edges, "all") == ("plain.h",)


def test_only_what_the_target_needs() -> None:
    edges = [
        edge(CUSTOM, "one.cpp", "one.py"),
        edge(CUSTOM, "two.cpp", "two.py"),
        edge(CUSTOM, "notes.txt", "notes.py"),
        edge("phony", "first", "one.cpp", "notes.txt"),
        edge("phony", "all", "first", "two.cpp"),
    ]
    assert generated_sources(edges, "first") == ("one.cpp",)
    assert sorted(generated_sources(edges, "all")) == ["one.cpp", "two.cpp"]
    assert generated_sources(edges, "nothing") == ()


def test_a_circle_is_left_to_ninja() -> None:
    edges = [edge(CUSTOM, "a.h", "b.h"), edge(CUSTOM, "b.h", "a.h")]
    assert generated_sources(edges, "a.h") == ()
