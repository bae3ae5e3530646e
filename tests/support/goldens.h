#pragma once

#include <filesystem>
#include <string>

namespace clover::test {

/// The folder of golden files, tests/golden.
inline std::filesystem::path goldens() {
  return std::filesystem::path(CLOVER_SOURCE_DIR) / "tests" / "golden";
}

/// A golden target, by the name of its folder.
inline std::filesystem::path golden_target(const std::string& name) {
  return goldens() / "targets" / name;
}

/// The folder of the golden tokenizers, or of one of them.
inline std::filesystem::path golden_tokenizers() {
  return goldens() / "tokenizers";
}
inline std::filesystem::path golden_tokenizer(const std::string& name) {
  return golden_tokenizers() / name;
}

}  // namespace clover::test
