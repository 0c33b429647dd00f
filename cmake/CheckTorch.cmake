# SPDX-License-Identifier: BSD-3-Clause
# Refuses a mix of two libtorch installations. TorchConfig.cmake looks for some of its libraries in
# system folders before its own, so a libtorch package of the distribution can slip in beside the
# one that was asked for; such a program links without a word and aborts when it starts.
function(stoker_check_torch)
  # The target's own files say which installation the program will load.
  get_target_property(main torch LOCATION)
  if(NOT main)
    return()
  endif()
  get_filename_component(main "${main}" REALPATH)
  get_filename_component(home "${main}" DIRECTORY)

  set(others "${TORCH_LIBRARY}" "${c10_LIBRARY}")
  foreach(target IN ITEMS torch_cpu c10)
    if(TARGET ${target})
      get_target_property(location ${target} LOCATION)
      list(APPEND others "${location}")
    endif()
  endforeach()

  foreach(other IN LISTS others)
    if(NOT other)
      continue()
    endif()
    get_filename_component(file "${other}" REALPATH)
    get_filename_component(folder "${file}" DIRECTORY)
    if(NOT folder STREQUAL home)
      message(FATAL_ERROR
        "stoker found parts of two libtorch installations, ${main} and ${other}; "
        "put the root folder of the one to use first in CMAKE_PREFIX_PATH (the folder that holds "
        "its include and lib) and configure anew in an empty build folder.")
    endif()
  endforeach()
endfunction()

stoker_check_torch()
