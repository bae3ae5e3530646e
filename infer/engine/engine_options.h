#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "infer/cost/cost_file.h"
#include "infer/tree/grow.h"

namespace clover::infer {

struct EngineOptions {
  GrowthRule growth;            // how candidate trees grow
  int64_t budget = -1;          // max nodes per tree without the root; -1: the policy's (growth_policies.h)
  bool typical = false;         // verify by typical acceptance, which is lossy
  bool suffix = false;          // also guess by copying from the sequence's own text (SuffixMatcher)
  bool suffix_answers = false;  // with `suffix`, also copy from finished answers (AnswerMatcher)
  int64_t max_batch = 16;       // sequences that prefill or decode at once
  int64_t kv_memory = 0;        // bytes of the KV cache; 0: 1/4 of a CPU's free memory or 4/5 of a GPU's
  int64_t page_size = 64;       // tokens per page of the KV cache
  int64_t prefill_chunk = 0;    // max prefill tokens per pass over all sequences; 0: 256, on a GPU up to 2048
  bool graphs = true;           // on a GPU, replay decode passes and drafts as CUDA graphs
  CostFile costs;               // where `auto` reads and saves how long passes take
  std::optional<std::vector<int64_t>> end_ids;  // tokens that end an answer; default_end_ids if not set
  /// Measures acceptance at the cost of drafting alone: the target's results are read from Request::recorded
  /// in place of passes, and of each tree only the guesses that are in the answer are verified.  Steps yield
  /// as many tokens as with passes, as far as the cache has room for whole trees.  (A GPU that drafts ahead
  /// leaves a sequence without guesses in its first step; here it has them.)  Requests must be greedy and
  /// without controls.  Not with policy `auto` or typical acceptance.
  bool recorded_answers = false;
};

/// Running totals of an engine since its creation.
struct EngineStats {
  int64_t requests = 0;       // finished
  int64_t tokens = 0;         // emitted by finished and running requests
  int64_t first_tokens = 0;   // those of `tokens` that prefill yielded: the first of each answer
  int64_t passes = 0;         // decode passes, each counted once for every sequence in it
  int64_t steps = 0;          // decode passes, each counted once
  int64_t steps_ahead = 0;    // those of `steps` that a GPU began before the CPU knew the previous tokens
  int64_t rows = 0;           // tree rows that the decode passes computed
  int64_t prompt_tokens = 0;  // of the prompts that are prefilled, each counted once
  int64_t shared_prompt_tokens = 0;  // those of `prompt_tokens` whose pages another request had filled
  int64_t prompt_rows = 0;           // prefilled rows: of prompts and, after preemptions, of answers
  int64_t prompt_passes = 0;         // passes that prefill
  int64_t mixed_passes = 0;          // passes that both prefill and decode
  int64_t preemptions = 0;           // each drops one sequence's keys and values, because pages ran out
  int64_t graphs = 0;                // CUDA graphs captured, of decode passes and of drafts
  double graph_seconds = 0;          // spent on capturing graphs
  int64_t graph_bytes = 0;           // GPU memory that the graphs take
  bool graphs_given_up = false;      // a capture failed, and no other was tried afterwards
  int64_t bytes_read = 0;            // lower bound: weights, keys and values that decode passes must read
  // The time of a mixed pass is divided between prefill and decoding in proportion to their rows.
  double prefill_seconds = 0;
  double decode_seconds = 0;       // whole steps, without calibration and graph capture
  double calibration_seconds = 0;  // timed passes of Calibration
  // Parts of decode_seconds: passes of the target, the drafter, growing trees, verification with commit.
  double target_seconds = 0, drafter_seconds = 0, grow_seconds = 0, verify_seconds = 0;
  // Representative drafts by the heads (CostModel::observe_draft), and the seconds that they added to their
  // steps.  For a draft that a GPU ran ahead these are a lower bound (DraftClock).
  int64_t drafts = 0;
  double draft_seconds = 0;
  /// [n]: how often n guesses of a sequence were accepted in a decode pass; adds up to `passes`.
  std::vector<int64_t> accepted_histogram;
  /// Mean tokens that a sequence gets from a decode pass, the bonus token included.
  double tokens_per_step() const { return passes ? double(tokens - first_tokens) / double(passes) : 0; }
  double seconds_per_draft() const { return drafts ? draft_seconds / double(drafts) : 0; }
};

}  // namespace clover::infer
