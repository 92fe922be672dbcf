# Used by the build and by the installed package: gives <target> what CUDA sources need beyond the headers, which is
# the dialect alone. Decided where CUDA is compiled, because CMake 3.25 does not know C++20 for recent nvcc: there the
# feature cuda_std_20 is refused and CUDA_STANDARD 20 is an error, so the plain flag has to do.
function(warmset_add_cuda_dialect target)
  if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(${target} INTERFACE cuda_std_20)
  else()
    target_compile_options(${target} INTERFACE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>")
  endif()
endfunction()
