# A fresh stage each time, so that a header that was deleted does not live on.
file(REMOVE_RECURSE "${STAGE}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${STAGE}"
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
