# SPDX-License-Identifier: BSD-3-Clause
# Who may include whom, and how large things may be: DESIGN.md's layout, checked.
#   cmake -DROOT=<checkout> -P layout_test.cmake
cmake_minimum_required(VERSION 3.25)

set(tier0 bad_samples checked_size control engine_draws failure finished_batch flat_sample
  generator_state keyed_permutation
  memory_budget place record row_layout row_writer sample_clock seed slot state_dict stats
  stream_copy task_source)
set(tier1 accelerator available_memory child_signals copy_watch device_faults futex host_guard host_pin
  lifeline pinned_memory pread_file region worker_threads)
set(tier2 arrivals batch_source checked_options collate datasets device_copy device_stage epoch_plan
  fetcher fill hand_out pad_collate permutation pinning publisher randomness replacements row_store sampler samplers slot_pool
  stream_reader stream_source supervisor weighted_random_sampler worker worker_context worker_loop
  worker_report worker_watch workers)
set(tier3 core)

# What runs in workers, which must not touch a device: not even ask for one.
set(in_workers child_signals collate control failure fill futex lifeline randomness row_layout row_store row_writer slot
  stream_copy
  stream_reader record supervisor worker_context worker_loop worker_threads)

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

file(GLOB_RECURSE headers ${ROOT}/include/stoker/*.h)
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
if(public_lines GREATER 3500)
  message(SEND_ERROR "the public headers have ${public_lines} lines; the limit is 3500")
endif()

foreach(source IN LISTS sources)
  check_size(${source})
  get_filename_component(name ${source} NAME_WE)
  tier_of(${name} mine)
  if(name IN_LIST in_workers)
    file(STRINGS ${source} bad
      REGEX "is_pinned|pin_memory|getAccelerator|getPinnedMemory|hasCUDA|lazyInit|[Cc]uda[A-Z_:(]")
    if(bad)
      message(SEND_ERROR "${source} runs in workers, and asks for a device: ${bad}")
    endif()
  endif()
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

# Types with SampleTraits lie in namespace stoker: two of one name in one program would be one type to
# the linker, with either's layout.
file(GLOB tests ${ROOT}/tests/*_test.cpp)
set(seen "")
foreach(test IN LISTS tests)
  file(STRINGS ${test} traits REGEX "^struct SampleTraits<[A-Za-z]+> ")
  foreach(line IN LISTS traits)
    string(REGEX REPLACE ".*SampleTraits<([A-Za-z]+)>.*" "\\1" name "${line}")
    if(name IN_LIST seen)
      message(SEND_ERROR "${test} has a sample type ${name}, and so has another test")
    endif()
    list(APPEND seen ${name})
  endforeach()
endforeach()
