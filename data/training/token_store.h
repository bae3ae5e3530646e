#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/unfinished_folder.h"
#include "data/training/sample_groups.h"
#include "data/training/training_input.h"

namespace clover::data {

enum class Split { train, held_out };
inline constexpr const char* split_names[2] = {"train", "held_out"};
inline constexpr int64_t token_store_version = 1;

/// Versioned, memory-mapped training set: `store.json` (version, counts, hashes of tokenizer, template and
/// target, sources) and `tokens.safetensors` (ids, supervised mask, offsets, category of each sample).
/// Written whole or not at all, an older store being there until the new one takes its place.
class TokenStore {
 public:
  struct Sample {
    std::span<const int32_t> ids;         // [T]
    std::span<const uint8_t> supervised;  // [T]
    std::string_view category;
  };

  /// InputError when it is missing, of another version, truncated or inconsistent.
  static TokenStore open(const std::filesystem::path& folder);

  int64_t size(Split split) const;                  // samples
  Sample sample(Split split, int64_t index) const;  // 0 <= index < size(split)
  int64_t supervised_tokens(Split split) const;
  const nlohmann::json& about() const;  // store.json

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Every sample goes to one split, with all samples of its prompt and of its conversation (SampleGroups): a
/// share `holdout` of them is held out, 0 <= holdout < 1, the same ones in any order of input.  With holdout
/// > 0 and two prompts or more, neither split is empty.
class TokenStoreWriter {
 public:
  /// InputError when `holdout` is out of range, the folder holds something else or cannot be written.
  TokenStoreWriter(std::filesystem::path folder, double holdout, int64_t vocab_size);

  /// InputError when the sample is empty or an id is outside the vocabulary.
  void add(const TrainingSample& sample);

  /// Writes the store; `about` (sources, hashes) is merged into store.json, which it returns.  InputError
  /// when there is no sample.
  nlohmann::json finish(const nlohmann::json& about);

 private:
  struct Column {
    std::vector<int32_t> ids;
    std::vector<uint8_t> supervised;
    std::vector<int64_t> offsets{0};
    std::vector<int32_t> category;  // index into categories_
    std::vector<uint64_t> hashes;
  };
  void append(Column& column, std::span<const int32_t> ids, std::span<const uint8_t> supervised,
              int32_t category, uint64_t hash);
  void part();

  std::filesystem::path folder_;
  double holdout_;
  int64_t vocab_size_;
  UnfinishedFolder fresh_;
  Column columns_[2];  // by Split; all in the first until they are parted
  SampleGroups groups_;
  int64_t prompts_[2] = {0, 0};  // by Split, groups of samples
  std::map<std::string, int32_t> categories_;
};

}  // namespace clover::data
