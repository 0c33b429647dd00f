# SPDX-License-Identifier: BSD-3-Clause
# Configures, builds and runs a consumer in a clean folder.
#   PROJECT  the consumer's folder
#   OUT      the folder to build in
#   INSTALL  a build of stoker to install first, in OUT/prefix
#   OPTION   a further argument of cmake
#   REFUSED  a regular expression: the configure step must fail and say this
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(text "${text}" PARENT_SCOPE)
  set(failed "${failed}" PARENT_SCOPE)
endfunction()

function(must_run)
  run(${ARGN})
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nfailed (${failed}):\n${text}")
  endif()
  message(STATUS "${text}")
endfunction()

file(REMOVE_RECURSE ${OUT})
if(INSTALL)
  must_run(${CMAKE_COMMAND} --install ${INSTALL} --prefix ${OUT}/prefix)
endif()

set(configure ${CMAKE_COMMAND} -G Ninja -S ${PROJECT} -B ${OUT}/build -Dstoker_ROOT=${OUT}/prefix
    ${OPTION})
if(REFUSED)
  run(${configure})
  string(REGEX REPLACE "[ \n]+" " " text "${text}")  # CMake wraps what it prints
  if(NOT failed OR NOT text MATCHES "${REFUSED}")
    message(FATAL_ERROR "expected an error that says \"${REFUSED}\", got (${failed}):\n${text}")
  endif()
  return()
endif()
must_run(${configure})
must_run(${CMAKE_COMMAND} --build ${OUT}/build --target consumer)
must_run(${OUT}/build/consumer)
