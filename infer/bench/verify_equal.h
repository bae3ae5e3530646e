#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "infer/bench/bench.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// Where the tokens of a configuration leave those of plain decoding.
struct Difference {
  std::string configuration;
  int64_t line = 0;
  int64_t position = 0;      // index into the answer's tokens
  int64_t plain_token = -1;  // -1: the answer had ended
  int64_t other_token = -1;
  std::optional<double> top_two_gap;  // of the target's logits there; tiny: a near tie
};

struct EqualityReport {
  int64_t configurations = 0;
  int64_t requests = 0;
  std::vector<Difference> differences;  // the first of each configuration and line
};

/// Decodes `lines` plainly, one at a time, and then with every configuration; tokens must be the same
/// (docs/architecture.md).
EqualityReport compare_outputs(const LoadedModel& model,
                               const std::vector<BenchConfiguration>& configurations,
                               const std::vector<BatchLine>& lines,
                               const std::function<void(const std::string&)>& say);

/// The first position at which two answers differ; none when they are equal.
std::optional<int64_t> first_difference(const std::vector<int64_t>& plain, const std::vector<int64_t>& other);

/// The gap between the two largest logits behind `ids`, by one teacher-forced reading; the first `prompt` of
/// them were read as one text.
double top_two_gap(const model::Target& target, const std::vector<int64_t>& ids, int64_t prompt = 0);

/// "clover budget 4, batch 3, page 16, prefill chunk 37"
std::string name_of(const BenchConfiguration& configuration, const model::Target& target);

}  // namespace clover::infer
