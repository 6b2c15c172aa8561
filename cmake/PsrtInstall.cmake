# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: library, headers, programs, psrt.pc, CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS psrt EXPORT psrtTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/psrt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
foreach(program psrtd psrt-info psrt-launch psrt-agent psrt-bench)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()

if(TARGET psrt-launch)
  install(FILES ${PROJECT_SOURCE_DIR}/launcher/job.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/psrt)
  install(FILES ${PSRT_MAN_PAGES} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# pkg-config: the prefix is found from the place of the file, so the tree may be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE PSRT_PC_PREFIX)
configure_file(${PROJECT_SOURCE_DIR}/cmake/psrt.pc.in ${PROJECT_BINARY_DIR}/psrt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/psrt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/psrt)
install(EXPORT psrtTargets FILE psrtConfig.cmake NAMESPACE psrt:: DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/psrtConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/psrtConfigVersion.cmake DESTINATION ${package})
