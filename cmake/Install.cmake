# What `cmake --install build --prefix P` puts where; `pip install .` (pyproject.toml) does the same with P the Python environment.
#
#   P/bin/           clover-infer, clover-train
#   P/lib/clover/    the libraries of .packages/, where scripts/setup --no-root has unpacked them
#   P/share/clover/  configs, documents, the licence
#
# The programs look for LibTorch beside themselves first, so that in a Python environment they use its torch; then in the
# torch that they were built with.

set(_origin "$ORIGIN/..")
set(_rpath "${_origin}/lib/clover")
if(LIBTORCH_SITE_PACKAGES MATCHES "/(lib(64)?/python3\\.[0-9]+/(site|dist)-packages)$")
  set(_beside "${_origin}/${CMAKE_MATCH_1}")
endif()
foreach(_packages IN ITEMS "${_beside}" "${LIBTORCH_SITE_PACKAGES}")
  if(_packages)
    list(APPEND _rpath "${_packages}/torch/lib")
    if(CMAKE_CUDA_COMPILER)
      list(APPEND _rpath "${_packages}/nvidia/nccl/lib" "${_packages}/nvidia/cu13/lib")
    endif()
  endif()
endforeach()

if(SKBUILD)
  set(_prefix "${SKBUILD_DATA_DIR}/")  # what a wheel puts under the environment's prefix
endif()
set(_programs clover-infer clover-train)
set_target_properties(${_programs} PROPERTIES INSTALL_RPATH "${_rpath}")
install(TARGETS ${_programs} RUNTIME DESTINATION "${_prefix}bin")

if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/.packages/usr")
  set(_unpacked "${CMAKE_SOURCE_DIR}/.packages/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
  file(GLOB _libraries "${_unpacked}/libicu*.so.*" "${_unpacked}/libsentencepiece.so.*" "${_unpacked}/libtomlplusplus.so.*")
  install(FILES ${_libraries} DESTINATION "${_prefix}lib/clover")
endif()

install(DIRECTORY configs docs DESTINATION "${_prefix}share/clover")
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION "${_prefix}share/clover")
