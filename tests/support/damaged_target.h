#pragma once

#include <filesystem>
#include <limits>
#include <string>

#include "data/files/safetensors.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover::test {

/// Writes a target to `folder` whose embedding of `token` is NaN, so that logits after this token are NaN.
inline void write_damaged_target(const std::filesystem::path& folder, int64_t token) {
  const std::filesystem::path whole = golden_target("untied-fp32");
  std::filesystem::copy(whole / "config.json", folder / "config.json");
  const auto reader = data::SafetensorsReader::open(whole);
  data::NamedTensors tensors;
  for (const std::string& name : reader.names()) {
    tensors.emplace_back(name, reader.read(name).clone());
    if (name == "model.embed_tokens.weight")
      tensors.back().second[token].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  data::write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace clover::test
