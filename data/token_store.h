#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/training_input.h"

namespace clover::data {

enum class Split { train, held_out };

/// Versioned, memory-mapped training set: `store.json` (version, counts, hashes of tokenizer, template and target, sources) and
/// `tokens.safetensors` (ids, supervised mask, offsets, category of each sample).  Written whole or not at all.
class TokenStore {
 public:
  struct Sample {
    std::span<const int32_t> ids;         // [T]
    std::span<const uint8_t> supervised;  // [T]
    std::string_view category;
  };

  /// InputError when it is missing, of another version, truncated or inconsistent.
  static TokenStore open(const std::filesystem::path& folder);

  int64_t size(Split split) const;                       // samples
  Sample sample(Split split, int64_t index) const;       // 0 <= index < size(split)
  int64_t supervised_tokens(Split split) const;
  const nlohmann::json& about() const;                   // store.json

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Every sample goes to one split, chosen by a hash of its content and `holdout` (the share held out, 0 <= holdout < 1), so
/// that the same sample is on the same side in any order of input.
class TokenStoreWriter {
 public:
  TokenStoreWriter(std::filesystem::path folder, double holdout, int64_t vocab_size);
  void add(const TrainingSample& sample);
  /// Writes the store; `about` (sources, hashes) is merged into store.json.  InputError when there is no sample.
  void finish(const nlohmann::json& about);

 private:
  std::filesystem::path folder_;
  double holdout_;
  int64_t vocab_size_;
  struct Column {
    std::vector<int32_t> ids;
    std::vector<uint8_t> supervised;
    std::vector<int64_t> offsets{0};
    std::vector<int32_t> category;
  };
  Column columns_[2];
  std::vector<std::string> categories_;
};

}  // namespace clover::data
