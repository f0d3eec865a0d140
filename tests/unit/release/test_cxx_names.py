"""The names that headers declare: namespaces, classes, macros, C, and what is left out."""

import pytest
from cxx_names import declared_names, words_in

HEADERS = [
    pytest.param("namespace a { namespace b { void grind(int); } }", {"a::b::grind"}, id="nested"),
    pytest.param("namespace a::b { int x, *y; }", {"a::b::x", "a::b::y"}, id="short-namespace"),
    pytest.param(
        "namespace a { inline namespace v2 { class Mill {}; } }", {"a::Mill"}, id="inline"
    ),
    pytest.param(
        "A_BEGIN_NAMESPACE int grind(); A_END_NAMESPACE int x;", {"x", "a::grind"}, id="m"
    ),
    pytest.param(
        "class Mill : public Wheel { int own; public: Mill(); ~Mill(); void grind() const {} };",
        {"Mill", "Mill::grind"},
        id="private-and-constructors",
    ),
    pytest.param(
        "struct Mill; class Wheel; enum Kind : int; struct API S;",
        set(),
        id="declared-in-advance",
    ),
    pytest.param("enum Kind { FINE = 1, COARSE };", {"Kind", "FINE", "COARSE"}, id="enum"),
    pytest.param("enum class Kind { kFine };", {"Kind", "Kind::kFine"}, id="scoped-enum"),
    pytest.param(
        "typedef struct { int wheels; union { int a; int b; }; } Mill;",
        {"Mill::wheels", "Mill::a", "Mill::b", "Mill"},
        id="typedef-of-a-struct",
    ),
    pytest.param("typedef int (*on_grind)(int, void *);", {"on_grind"}, id="pointer-to-function"),
    pytest.param("PyAPI_FUNC(int) PyMill_Grind(void);", {"PyMill_Grind"}, id="macro-before-name"),
    pytest.param(
        'extern "C" { MILL_API int MILL_CALL mill(int a) __attribute__((pure)); }', {"mill"}, id="c"
    ),
    pytest.param(
        "template <class T, int N = 3> std::function<void(T)> wrap(T&& t) { int in; return {}; }",
        {"wrap"},
        id="template",
    ),
    pytest.param("using Mill = std::vector<int>; using a::Wheel;", {"Mill", "Wheel"}, id="using"),
    pytest.param(
        "#if A\nclass Mill : One {\n#else\nclass Mill {\n#endif\npublic: void grind();\n};\nint x;",
        {"Mill", "Mill::grind", "x"},
        id="both-branches",
    ),
    pytest.param(
        'A_PUSH()\nA_IGNORE("-Wall")\nnamespace a { int grind(); }', {"a::grind"}, id="calls-before"
    ),
    pytest.param(
        "#ifdef A\nnamespace a {\n#endif\nint grind();\n#ifdef A\n}\n#endif\nint x;",
        {"grind", "x"},
        id="optional-namespace",
    ),
    pytest.param(
        "#ifdef __cplusplus\nnamespace a {\n#endif\nint grind();\n#ifdef __cplusplus\n}\n#endif",
        {"a::grind"},
        id="namespace-of-cxx",
    ),
    pytest.param("#define MILL(x) \\\n  int not_this\n// int nor_this;\n", {"MILL"}, id="macro"),
]


@pytest.mark.parametrize(("header", "names"), HEADERS)
def test_the_names_of_a_header(header: str, names: set[str]) -> None:
    assert declared_names(header, {"A_BEGIN_NAMESPACE": "a"}) == names


def test_the_words_of_a_header_are_those_of_its_code() -> None:
    assert words_in('int x; // gone\n/* too */ #define MILL "text" y') == {
        "int",
        "x",
        "define",
        "MILL",
        "y",
    }
