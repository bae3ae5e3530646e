#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "infer/cost/cost_file.h"
#include "infer/tree/grow.h"

namespace clover::infer {

struct EngineOptions {
  GrowthRule growth;
  int64_t budget = -1;          // nodes a sequence, root excluded; -1: the policy's own (growth_policies.h)
  bool typical = false;         // verification by typical acceptance, which is lossy
  bool suffix = false;          // also guess by copying from the text so far (SuffixMatcher)
  bool suffix_answers = false;  // .. and from finished answers
  int64_t max_batch = 16;       // sequences decoded at once
  int64_t kv_memory = 0;      // bytes for keys and values; 0: a quarter of what is free, of a GPU four fifths
  int64_t page_size = 64;     // tokens a page
  int64_t prefill_chunk = 0;  // prompt tokens a pass, of all sequences; 0: 256, on a GPU up to 2048
  bool graphs = true;         // on a GPU, replay decode passes and drafts as CUDA graphs
  CostFile costs;             // what earlier runs of `auto` have learnt
  std::optional<std::vector<int64_t>> end_ids;  // tokens that end an answer; default_end_ids if not set
};

/// Running totals of an engine.  Tokens per step = (tokens - first tokens) / passes, summed over sequences.
struct EngineStats {
  int64_t requests = 0;      // finished
  int64_t tokens = 0;        // emitted by finished and running requests
  int64_t first_tokens = 0;  // of these, yielded by prefill
  int64_t passes = 0;        // decode passes summed over sequences
  int64_t steps = 0;         // decode passes of the batch
  int64_t steps_ahead = 0;   // of these, launched on a GPU before the last pass's tokens were known
  int64_t rows = 0;          // rows the decode passes computed, without those of prompts
  int64_t prompt_tokens = 0;
  int64_t shared_prompt_tokens = 0;  // of these, taken from requests with the same prefix
  int64_t prompt_rows = 0;           // prefilled: of prompts and, after preemptions, answers
  int64_t prompt_passes = 0;         // passes with such rows
  int64_t mixed_passes = 0;          // of these, passes that also decoded
  int64_t preemptions = 0;           // times a sequence was preempted for want of pages
  int64_t graphs = 0;                // of decode passes and drafts, captured on a GPU
  double graph_seconds = 0;          // that capturing them took
  int64_t graph_bytes = 0;           // of the GPU's memory, that they take
  bool graphs_given_up = false;      // a capture failed, and no other was tried afterwards
  int64_t bytes_read = 0;            // weights, keys and values that decoding reads at least
  // A pass that prefills and decodes counts for both by their rows.
  double prefill_seconds = 0;
  double decode_seconds = 0;  // whole steps, drafting included, calibration and capture apart
  double calibration_seconds = 0;
  double target_seconds = 0, drafter_seconds = 0, grow_seconds = 0,
         verify_seconds = 0;  // parts of decode_seconds
  // Warm drafts by the heads, without those that also read what earlier steps had left, and what they took;
  // of a draft launched ahead on a GPU what a step had to wait for it at least (DraftClock).
  int64_t drafts = 0;
  double draft_seconds = 0;
  std::vector<int64_t> accepted_histogram;
  double tokens_per_step() const { return passes ? double(tokens - first_tokens) / double(passes) : 0; }
  double seconds_per_draft() const { return drafts ? draft_seconds / double(drafts) : 0; }
};

}  // namespace clover::infer
