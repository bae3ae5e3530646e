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

/// A tokenised training set in a folder, memory-mapped.  `store.json` has the version, counts, sources, and
/// hashes of tokenizer, chat template and target.  `tokens.safetensors` has for each split the columns ids,
/// supervised, offsets and category (TokenStore::State in token_store.cc has their shapes).
class TokenStore {
 public:
  struct Sample {
    std::span<const int32_t> ids;         // [T]
    std::span<const uint8_t> supervised;  // [T] 1: the token is a label of the loss
    std::string_view category;
  };

  /// InputError when the store is missing, of another version, truncated or inconsistent.
  static TokenStore open(const std::filesystem::path& folder);

  int64_t size(Split split) const;                  // number of samples
  Sample sample(Split split, int64_t index) const;  // 0 <= index < size(split)
  int64_t supervised_tokens(Split split) const;
  const nlohmann::json& metadata() const;  // store.json

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Writes a token store.  A share `holdout` of the samples (0 <= holdout < 1) is held out.  Samples of one
/// prompt or conversation are in the same split (sample_groups.h), and the order of the samples does not
/// change the split.  With holdout > 0 and at least two prompts, neither split is empty.  An existing store
/// is replaced when the new one is complete.
class TokenStoreWriter {
 public:
  /// InputError when `holdout` is out of range, or when the folder cannot be written or holds anything but a
  /// token store.
  TokenStoreWriter(std::filesystem::path folder, double holdout, int64_t vocab_size);

  /// InputError when the sample is empty or an id is outside the vocabulary.
  void add(const TrainingSample& sample);

  /// Writes the store and returns the contents of store.json, into which `metadata` (sources, hashes) is
  /// merged.  InputError when there is no sample.
  nlohmann::json finish(const nlohmann::json& metadata);

 private:
  struct Columns {
    std::vector<int32_t> ids;         // [tokens]
    std::vector<uint8_t> supervised;  // [tokens]
    std::vector<int64_t> offsets{0};  // [samples + 1]
    std::vector<int32_t> category;    // [samples] index into categories_
    std::vector<uint64_t> hashes;     // [samples] of ids and supervised
  };
  void append(Columns& columns, std::span<const int32_t> ids, std::span<const uint8_t> supervised,
              int32_t category, uint64_t hash);
  /// Moves the held-out samples to the columns of their split.
  void split_held_out();

  std::filesystem::path folder_;
  double holdout_;
  int64_t vocab_size_;
  UnfinishedFolder new_store_;
  Columns columns_[2];  // by Split; before split_held_out() all samples are in the first
  SampleGroups groups_;
  int64_t prompts_[2] = {0, 0};                // by Split: how many groups of samples
  std::map<std::string, int32_t> categories_;  // name to index, in the order of their first samples
};

}  // namespace clover::data
