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
  std::string configuration;  // configuration_name
  int64_t line = 0;           // line number of the input
  int64_t position = 0;       // index of the token in the answer
  int64_t plain_token = -1;   // of plain decoding; -1: its answer had ended
  int64_t other_token = -1;   // of the configuration; -1: its answer had ended
  /// Between the target's two largest logits at that token; a tiny gap is a near tie.
  std::optional<double> top_two_gap;
};

struct EqualityReport {
  int64_t configurations = 0;
  int64_t requests = 0;
  std::vector<Difference> differences;  // at most one for each configuration and line
};

/// Decodes `lines` plainly, one at a time, and then with each configuration (run_requests), and compares the
/// token ids, which must be the same (docs/architecture.md).  `log` gets a line of text after each
/// configuration.
EqualityReport compare_outputs(const LoadedModel& model,
                               const std::vector<BenchConfiguration>& configurations,
                               const std::vector<BatchLine>& lines,
                               const std::function<void(const std::string&)>& log);

/// The index of the first token in which two answers differ; empty when they are equal.
std::optional<int64_t> first_difference(const std::vector<int64_t>& plain, const std::vector<int64_t>& other);

/// The difference between the two largest logits after the tokens `ids`, of which the first `prompt_tokens`
/// are the prompt.
double top_two_gap(const model::Target& target, const std::vector<int64_t>& ids, int64_t prompt_tokens = 0);

/// Such as "clover budget 4, batch 3, page 16, prefill chunk 37".
std::string configuration_name(const BenchConfiguration& configuration, const model::Target& target);

}  // namespace clover::infer
