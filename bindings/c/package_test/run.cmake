# Installs the library of BUILD below WORK, builds the examples against it and runs them.
#   cmake -DBUILD=... -DWORK=... -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
  -DEXAMPLE=${CMAKE_CURRENT_LIST_DIR}/../example.c)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/c_example)
run(${WORK}/build/cxx_example)
