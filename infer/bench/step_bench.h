#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/bench/bench.h"
#include "model/target/target.h"

namespace clover::infer {

/// What to measure: the passes and drafts of a decoding step.  They need no requests, because their time does
/// not depend on the text.
struct StepBenchPlan {
  std::vector<int64_t> batch_sizes = {1};
  std::vector<int64_t> rows = {1};  // per sequence in a pass: the root and rows - 1 guesses of a tree
  int64_t context = 512;            // tokens of each sequence in the KV cache
  int64_t rounds = 5;
  bool graphs = true;  // on a GPU, replay passes and drafts as CUDA graphs
  std::string trace;   // file for a profile of eight steps at the first batch size (trace.h); empty: none
};

/// Times passes of the target (logits and arg-max of all rows), and drafts of each drafter: it reads two
/// accepted rows per sequence and drafts a token with each of its heads.  On a GPU each pass is queued after
/// the previous one and each draft after a pass, as in decoding, and the seconds of a draft are the GPU's.
/// Each round times everything eight times.  Returns "configurations" of the --json: for passes
/// {"batch_size", "rows", "context", "bytes_read", "seconds", "rounds"}, for drafts {"batch_size", "heads",
/// "kind", "draft_vocab", "context", "seconds", "rounds"}.  "seconds" is the median of all runs, "rounds" has
/// the median of each round.  InputError when the rows do not fit into the model's context, or keys and
/// values into memory.
nlohmann::json run_step_bench(const model::Target& target, const std::vector<NamedDrafter>& drafters,
                              const StepBenchPlan& plan);

/// The results of run_step_bench as a table of text.  `read_bandwidth`: of the target's device, bytes per
/// second.
std::string step_bench_table(const nlohmann::json& configurations, double read_bandwidth);

}  // namespace clover::infer
