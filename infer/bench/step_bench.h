#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/bench/bench.h"
#include "model/target/target.h"

namespace clover::infer {

/// Measures the parts of a decoding step without requests, because their cost does not depend on the text.
struct StepBenchPlan {
  std::vector<int64_t> batch_sizes = {1};
  std::vector<int64_t> rows = {1};  // per sequence: a root and rows - 1 further nodes of a candidate tree
  int64_t context = 512;            // tokens of each sequence in the KV cache
  int64_t rounds = 5;
  bool graphs = true;  // on a GPU, replay passes as CUDA graphs
  std::string trace;   // file for a profile of eight steps at the first batch size (trace.h); empty: none
};

/// Times passes of the target (logits and arg-max of all rows) and, for every drafter, priming it with two
/// accepted rows per sequence and drafting a token with each of its heads.  On a GPU a pass is queued behind
/// the one before and a draft behind a pass, as in decoding; a draft's seconds are measured on the GPU.  All
/// settings are measured once in every round; "seconds" is the median.  Returns "configurations" of the
/// --json, for passes {"batch_size", "rows", "context", "bytes_read", "seconds", "rounds"} and for drafts
/// {"batch_size", "heads", "kind", "draft_vocab", "context", "seconds", "rounds"}.  InputError when the rows
/// do not fit into the model's context, or keys and values into the memory.
nlohmann::json run_step_bench(const model::Target& target, const std::vector<NamedDrafter>& drafters,
                              const StepBenchPlan& plan);

/// The table that people read.  `read_bandwidth`: bytes per second.
std::string step_bench_table(const nlohmann::json& configurations, double read_bandwidth);

}  // namespace clover::infer
