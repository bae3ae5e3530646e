#pragma once

#include <filesystem>
#include <random>
#include <string>

#include "data/training/token_store.h"
#include "tests/support/goldens.h"

namespace clover::train {

inline std::filesystem::path tiny_target() {
  return test::golden_target("tied-bf16");
}

/// Writes a token store for the tiny target: sequences that count upwards, which heads can learn, and after
/// them samples without a supervised token.
inline void write_counting_store(const std::filesystem::path& folder, int64_t samples, int64_t useless = 0) {
  constexpr int64_t vocab = 130;
  std::mt19937 random(3);
  data::TokenStoreWriter writer(folder, 0.0, vocab);
  for (int64_t i = 0; i < samples; ++i) {
    data::TrainingSample sample;
    // Only three lengths, since LibTorch generates code for matrix products of each new number of rows, which
    // takes longer than the rest of a run.
    const int64_t length = 12 + 8 * static_cast<int64_t>(random() % 3);
    int64_t id = static_cast<int64_t>(random() % vocab);
    for (int64_t t = 0; t < length; ++t, id = (id + 1) % vocab) {
      sample.ids.push_back(id);
      sample.supervised.push_back(t >= 5);
    }
    writer.add(sample);
  }
  for (int64_t i = 0; i < useless; ++i) writer.add({{5, 6, 7}, {0, 0, 0}, ""});
  writer.finish({});
}

}  // namespace clover::train
