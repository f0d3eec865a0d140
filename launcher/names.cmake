# Writes the names of compilers as tables of C. The preloaded library must not read files, so it has
# the tables of the Python package built in.
#   cmake -DFROM=src/stoker/knowledge/compiler_names.toml -DTO=names.h -P launcher/names.cmake
file(READ "${FROM}" text)
set(header "/* Generated from compiler_names.toml. */\n#include <stddef.h>\n\n")
foreach(group compilers originals back_ends linkers wrappers distributors cached shells)
  if(NOT "\n${text}" MATCHES "\n${group} = \\[([^]]*)\\]")
    message(FATAL_ERROR "${FROM} has no list '${group}'")
  endif()
  string(STRIP "${CMAKE_MATCH_1}" names)
  string(REGEX REPLACE ",$" "" names "${names}")
  string(TOUPPER "${group}" name)
  string(APPEND header "static const char *const ${name}[] = {${names}, NULL};\n")
endforeach()
file(WRITE "${TO}" "${header}")
