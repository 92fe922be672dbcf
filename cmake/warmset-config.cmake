include("${CMAKE_CURRENT_LIST_DIR}/warmset-targets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/warmset-cuda.cmake")

if(NOT TARGET warmset::cuda)
  add_library(warmset::cuda INTERFACE IMPORTED)
  target_link_libraries(warmset::cuda INTERFACE warmset::warmset)
  warmset_add_cuda_dialect(warmset::cuda)
endif()
