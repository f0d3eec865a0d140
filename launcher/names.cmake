# Writes the names of compilers and of options as tables of C. The preloaded library and the launcher
# must not read files, so they have the tables of the Python package built in.
#   cmake -DFROM=src/stoker/knowledge/compiler_names.toml -DTO=FOLDER -P launcher/names.cmake
file(READ "${FROM}" text)
set(names compilers originals back_ends linkers wrappers distributors cached shells)
set(options outputs header_lists)
foreach(file names options)
  set(header "/* Generated from compiler_names.toml. */\n#include <stddef.h>\n\n")
  foreach(group ${${file}})
    if(NOT "\n${text}" MATCHES "\n${group} = \\[([^]]*)\\]")
      message(FATAL_ERROR "${FROM} has no list '${group}'")
    endif()
    string(STRIP "${CMAKE_MATCH_1}" words)
    string(REGEX REPLACE ",$" "" words "${words}")
    string(TOUPPER "${group}" name)
    string(APPEND header "static const char *const ${name}[] = {${words}, NULL};\n")
  endforeach()
  file(WRITE "${TO}/${file}.h" "${header}")
endforeach()
