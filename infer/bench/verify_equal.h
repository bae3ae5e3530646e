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

/// The first token of an answer that differs from plain decoding.
struct Difference {
  std::string configuration;
  int64_t line = 0;          // of the input
  int64_t position = 0;      // index into the answer's tokens
  int64_t plain_token = -1;  // -1: the answer had ended
  int64_t other_token = -1;
  std::optional<double>
      top_two_gap;  // between the target's two largest logits there; a tiny one is a near tie
};

struct EqualityReport {
  int64_t configurations = 0;
  int64_t requests = 0;
  std::vector<Difference> differences;  // at most one for each configuration and line
};

/// Decodes `lines` plainly, one at a time, and then with every configuration (both with run_requests), and
/// compares the token ids, which must be the same (docs/architecture.md).  `log` is called with a line of
/// text after each configuration.
EqualityReport compare_outputs(const LoadedModel& model,
                               const std::vector<BenchConfiguration>& configurations,
                               const std::vector<BatchLine>& lines,
                               const std::function<void(const std::string&)>& log);

/// The first position at which two answers differ; empty when they are equal.
std::optional<int64_t> first_difference(const std::vector<int64_t>& plain, const std::vector<int64_t>& other);

/// The gap between the two largest logits after the tokens `ids`, from a teacher-forced pass.  The first
/// `prompt` ids were one prompt.
double top_two_gap(const model::Target& target, const std::vector<int64_t>& ids, int64_t prompt = 0);

/// "clover budget 4, batch 3, page 16, prefill chunk 37"
std::string name_of(const BenchConfiguration& configuration, const model::Target& target);

}  // namespace clover::infer
