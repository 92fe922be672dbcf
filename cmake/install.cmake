include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/warmset")

install(TARGETS warmset EXPORT warmset-targets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT warmset-targets NAMESPACE warmset:: DESTINATION "${_package_dir}")

# Headers do not depend on the architecture; while the version is 0.x every minor version may break.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/warmset-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/warmset-config-version.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/warmset-config.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/warmset-cuda.cmake"
  DESTINATION "${_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/warmset")
