# Shared by tests, benchmarks and examples; consumers of the library never see it.

set(CMAKE_CXX_EXTENSIONS OFF)

# Warnings for our own targets. Third-party headers come in as system headers, so they stay silent.
add_library(warmset_warnings INTERFACE)
set(_host_warnings -Wall -Wextra -Wconversion -Wshadow)
if(WARMSET_WERROR)
  list(APPEND _host_warnings -Werror)
  target_compile_options(warmset_warnings INTERFACE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings>")
endif()
target_compile_options(warmset_warnings INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:${_host_warnings}>"
  # GCC 12 sees overlapping copies in optimised string concatenation where there are none (GCC bug 105651).
  "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>"
  "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wextra>")

# An optional library for tests and tools: an INTERFACE target over the first of TARGETS that exists, or an empty one.
function(warmset_optional_library name)
  cmake_parse_arguments(arg "" "" "TARGETS;DEFINE" ${ARGN})
  add_library(${name} INTERFACE)
  foreach(candidate IN LISTS arg_TARGETS)
    if(TARGET ${candidate})
      target_link_libraries(${name} INTERFACE ${candidate})
      target_compile_definitions(${name} INTERFACE ${arg_DEFINE})
      return()
    endif()
  endforeach()
  message(STATUS "Optional library for ${name} not found")
endfunction()

find_package(zstd CONFIG QUIET)
find_package(fmt CONFIG QUIET)
find_package(CLI11 CONFIG QUIET)
find_package(nlohmann_json CONFIG QUIET)
find_package(Threads REQUIRED)

if(NOT TARGET zstd::libzstd_shared AND NOT TARGET zstd::libzstd)
  find_path(WARMSET_ZSTD_INCLUDE_DIR zstd.h)
  find_library(WARMSET_ZSTD_LIBRARY zstd)
  mark_as_advanced(WARMSET_ZSTD_INCLUDE_DIR WARMSET_ZSTD_LIBRARY)
  if(WARMSET_ZSTD_INCLUDE_DIR AND WARMSET_ZSTD_LIBRARY)
    add_library(zstd::libzstd UNKNOWN IMPORTED)
    set_target_properties(zstd::libzstd PROPERTIES
      IMPORTED_LOCATION "${WARMSET_ZSTD_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${WARMSET_ZSTD_INCLUDE_DIR}")
  endif()
endif()

# Each defines WARMSET_HAS_<LIBRARY>=1 where it is present.
warmset_optional_library(warmset_zstd
  TARGETS zstd::libzstd_shared zstd::libzstd zstd::libzstd_static DEFINE WARMSET_HAS_ZSTD=1)
warmset_optional_library(warmset_fmt TARGETS fmt::fmt DEFINE WARMSET_HAS_FMT=1)
warmset_optional_library(warmset_cli11 TARGETS CLI11::CLI11 DEFINE WARMSET_HAS_CLI11=1)
warmset_optional_library(warmset_json TARGETS nlohmann_json::nlohmann_json DEFINE WARMSET_HAS_JSON=1)
