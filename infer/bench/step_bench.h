#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/bench/bench.h"
#include "model/target/target.h"

namespace clover::infer {

/// The parts of a decoding step, timed without requests: what a step costs does not depend on the text.
struct StepBenchPlan {
  std::vector<int64_t> batch_sizes = {1};
  std::vector<int64_t> rows = {1};  // of each sequence: a root and rows-1 tree rows behind it
  int64_t context = 512;            // tokens that each sequence has cached
  int64_t rounds = 5;
  bool graphs = true;  // on a GPU
  std::string trace;   // a file for what ran when in steps of the first batch size, or empty
};

/// Times passes of the target (logits and arg-max of all rows) and, for every drafter, priming it with two
/// accepted rows a sequence and guessing a token with each of its heads.  On a GPU passes are queued one
/// behind the other and a draft behind a pass, as when text is decoded; a draft's seconds are the GPU's own.
/// Settings alternate within a round; "seconds" is the median.  Returns the "configurations" of the JSON
/// contract: {"batch_size", "rows", "context", "bytes_read", "seconds", "rounds"}, and of drafting
/// {"batch_size", "heads", "kind", "draft_vocab", "context", "seconds", "rounds"}.  InputError when rows do
/// not fit the model's context or the keys and values the memory.
nlohmann::json run_step_bench(const model::Target& target, const std::vector<NamedDrafter>& drafters,
                              const StepBenchPlan& plan);

/// For people; read_bandwidth in bytes a second.
std::string step_bench_table(const nlohmann::json& configurations, double read_bandwidth);

/// What heads of a kind got accepted in a real run.
struct Acceptance {
  int64_t budget = 0;          // guesses checked a step
  double tokens_per_step = 0;  // the target's own included
};

/// By kind, from `real`, a --json of bench: of its fixed budgets (draft "clover") the first whose steps are
/// among `rows`.  InputError when there is none.
std::map<std::string, Acceptance> read_acceptance(const nlohmann::json& real,
                                                  const std::vector<int64_t>& rows);

/// Tokens a second of each batch size, plain and with each kind of heads, from measured steps and drafting.
nlohmann::json project_speed(const nlohmann::json& configurations,
                             const std::map<std::string, Acceptance>& acceptance);
std::string projection_table(const nlohmann::json& projections);

}  // namespace clover::infer
