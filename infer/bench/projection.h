#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// How well one kind of heads did in a measurement with trained heads.
struct Acceptance {
  int64_t budget = 0;          // guesses verified per step
  double tokens_per_step = 0;  // per sequence, the bonus token included
};

/// Reads the acceptance of each kind of heads from `bench`, a --json of bench.  Only step_entries of the
/// growth policy "clover" count, because their budget is fixed.  The result has for
/// each kind the first configuration whose rows per step (budget + 1) are among `rows` (StepBenchPlan::rows).
/// InputError when there is none for any kind.
std::map<std::string, Acceptance> read_acceptance(const nlohmann::json& bench,
                                                  const std::vector<int64_t>& rows);

/// Projects tokens per second for each batch size, for plain decoding and for each kind of heads:
/// batch size * tokens per step / (seconds of a pass + seconds of a draft).  `step_entries`: the result of
/// run_step_bench; entries with "rows" time a pass, entries with "kind" a draft.  Returns a list of
/// {"batch_size", "kind", "draft_vocab", "tokens_per_step", "tokens_per_second"}; kind and draft_vocab are
/// null for plain decoding.
nlohmann::json project_speed(const nlohmann::json& step_entries,
                             const std::map<std::string, Acceptance>& acceptance);
/// The projections as a table of text.
std::string projection_table(const nlohmann::json& projections);

}  // namespace clover::infer
