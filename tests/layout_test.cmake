# SPDX-License-Identifier: BSD-3-Clause
# Who may include whom, and how large things may be: DESIGN.md's layout, checked.
#   cmake -DROOT=<checkout> -P layout_test.cmake
cmake_minimum_required(VERSION 3.25)

set(tier0 control failure generator_state memory_budget row_layout row_writer slot state_dict stats
  stream_copy)
set(tier1 accelerator available_memory copy_watch device_faults futex host_guard host_pin pinned_memory
  region)
set(tier2 arrivals batch_source checked_options collate device_copy device_stage fill hand_out pinning
  randomness sampler seed slot_pool supervisor worker worker_context worker_loop worker_report worker_watch)
set(tier3 core)

function(tier_of name out)
  foreach(tier RANGE 3)
    if(name IN_LIST tier${tier})
      set(${out} ${tier} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(SEND_ERROR "src/${name} is in no tier; add it to tests/layout_test.cmake")
  set(${out} 0 PARENT_SCOPE)
endfunction()

function(check_size file)
  # Not file(STRINGS): brackets in source text upset CMake's lists.
  file(READ ${file} text)
  string(REGEX REPLACE "[^\n]" "" newlines "${text}")
  string(LENGTH "${newlines}" count)
  if(count GREATER 400)
    message(SEND_ERROR "${file} has ${count} lines; the limit is 400: is there a seam?")
  endif()
  set(count ${count} PARENT_SCOPE)
endfunction()

file(GLOB headers ${ROOT}/include/stoker/*.h ${ROOT}/include/stoker/detail/*.h)
file(GLOB sources ${ROOT}/src/*.h ${ROOT}/src/*.cpp)
if(NOT headers OR NOT sources)
  message(FATAL_ERROR "found no sources under '${ROOT}'")
endif()

set(public_lines 0)
foreach(header IN LISTS headers)
  check_size(${header})
  math(EXPR public_lines "${public_lines} + ${count}")
  file(STRINGS ${header} bad
    REGEX "#include *<(boost|sys/|linux/|unistd|pthread|cuda|torch/torch\\.h|torch/data)")
  if(bad)
    message(SEND_ERROR "${header} includes more than std and narrow torch headers: ${bad}")
  endif()
endforeach()
if(public_lines GREATER 2000)
  message(SEND_ERROR "the public headers have ${public_lines} lines; the limit is 2000")
endif()

foreach(source IN LISTS sources)
  check_size(${source})
  get_filename_component(name ${source} NAME_WE)
  tier_of(${name} mine)
  file(STRINGS ${source} includes REGEX "^#include")
  foreach(line IN LISTS includes)
    if(line MATCHES "<boost" AND NOT name STREQUAL region)
      message(SEND_ERROR "${source} names Boost; only src/region.cpp may")
    endif()
    if(line MATCHES "\"([a-z_]+)\\.h\"")
      set(other ${CMAKE_MATCH_1})
      tier_of(${other} theirs)
      if(theirs GREATER mine)
        message(SEND_ERROR "${source} (tier ${mine}) includes ${other}.h (tier ${theirs})")
      endif()
    endif()
  endforeach()
endforeach()
