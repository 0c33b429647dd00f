# SPDX-License-Identifier: BSD-3-Clause
# torch's headers cost 10 to 30 s of CPU per source file, so a compiler cache is used where it exists.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(STOKER_CCACHE ccache)
  if(STOKER_CCACHE)
    # Without this sloppiness it caches nothing that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${STOKER_CCACHE})
  endif()
endif()
