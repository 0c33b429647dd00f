# SPDX-License-Identifier: BSD-3-Clause
# What our own targets are compiled with; linked privately, never exported.
add_library(stoker_warnings INTERFACE)
target_compile_options(stoker_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wundef
  -Wextra-semi -Wvla $<$<BOOL:${STOKER_WARNINGS_AS_ERRORS}>:-Werror>)
# False alarms of GCC 12 in std::string's operator+ (its bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(stoker_warnings INTERFACE -Wno-restrict)
endif()
# And of its instrumented code.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND STOKER_SANITIZE)
  target_compile_options(stoker_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
