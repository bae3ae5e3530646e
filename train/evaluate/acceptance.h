#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "infer/engine/request.h"
#include "model/drafters/drafter.h"
#include "train/evaluate/target_answers.h"

namespace clover::train {

/// Results of decoding with a drafter.
struct AcceptanceMetrics {
  double tokens_per_step = 0;  // the mean over passes, bonus tokens included
  int64_t tokens = 0;          // of the answers
  int64_t passes = 0;          // decode passes, summed over sequences
  double seconds = 0;          // of the measurement; the first one also finds the target's answers
  std::vector<int64_t> accepted_histogram;  // [k]: passes of a sequence that accepted k guesses
  nlohmann::json by_category;               // {category: tokens per step}
};

/// Measures acceptance: how many tokens a step greedy decoding yields with a drafter.  The engine that serves
/// requests (infer/engine/) decodes, with policy `clover`; what the target says is read from `answers`
/// (EngineOptions::recorded_answers), so that a measurement costs what drafting costs.
class Acceptance {
 public:
  /// budget: guesses checked for a sequence in a step.  `answers` is borrowed.
  Acceptance(TargetAnswers& answers, int64_t budget) : answers_(answers), budget_(budget) {}

  /// A thawed drafter is frozen in the target's dtype for the measurement and thawed afterwards.  It reads no
  /// other features than TargetAnswers has.
  AcceptanceMetrics measure(model::Drafter& drafter);

 private:
  std::vector<infer::Completion> decode(model::Drafter& drafter) const;
  AcceptanceMetrics metrics_of(const std::vector<infer::Completion>& completions) const;

  TargetAnswers& answers_;
  int64_t budget_;
};

}  // namespace clover::train
