# SentencePiece::sentencepiece: the library and its header, which come without a CMake configuration of their own.

find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece REQUIRED_VARS SENTENCEPIECE_LIBRARY SENTENCEPIECE_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "install libsentencepiece-dev, or run scripts/setup")
add_library(SentencePiece::sentencepiece SHARED IMPORTED)
set_target_properties(SentencePiece::sentencepiece PROPERTIES IMPORTED_LOCATION "${SENTENCEPIECE_LIBRARY}"
                                                              INTERFACE_INCLUDE_DIRECTORIES "${SENTENCEPIECE_INCLUDE_DIR}")
