# SPDX-License-Identifier: BSD-3-Clause
# find_package(stoker) after `cmake --install`.
include(CMakePackageConfigHelpers)

set(STOKER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/stoker)

install(TARGETS stoker EXPORT stokerTargets FILE_SET HEADERS)
install(EXPORT stokerTargets NAMESPACE stoker:: DESTINATION ${STOKER_CMAKE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stokerConfig.cmake.in
  ${PROJECT_BINARY_DIR}/stokerConfig.cmake
  INSTALL_DESTINATION ${STOKER_CMAKE_DIR}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stokerConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
    ${PROJECT_BINARY_DIR}/stokerConfig.cmake
    ${PROJECT_BINARY_DIR}/stokerConfigVersion.cmake
    ${PROJECT_SOURCE_DIR}/cmake/CheckTorch.cmake
  DESTINATION ${STOKER_CMAKE_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
