# SPDX-License-Identifier: BSD-3-Clause
# Every test that pytorch_cases.md names exists.
#   cmake -DROOT=<checkout> -P pytorch_cases_test.cmake
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE sources ${ROOT}/tests/*_test.cpp)
set(tests "")
foreach(source IN LISTS sources)
  file(READ ${source} text)
  string(APPEND tests "${text}")
endforeach()

file(READ ${ROOT}/tests/pytorch_cases.md table)
string(REGEX MATCHALL "`[A-Za-z]+Test\\.[A-Za-z]+`" names "${table}")
list(LENGTH names count)
if(count LESS 50)
  message(FATAL_ERROR "found only ${count} names of tests in pytorch_cases.md")
endif()
list(REMOVE_DUPLICATES names)
foreach(name IN LISTS names)
  string(REGEX REPLACE "`([A-Za-z]+)\\.([A-Za-z]+)`" "\\1, \\2)" wanted "${name}")
  string(FIND "${tests}" "${wanted}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "pytorch_cases.md names ${name}, which is no test")
  endif()
endforeach()
