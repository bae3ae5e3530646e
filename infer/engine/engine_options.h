#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "infer/cost/cost_file.h"
#include "infer/tree/grow.h"

namespace clover::infer {

struct EngineOptions {
  GrowthRule growth{Policy::automatic};
  int64_t budget = -1;   // nodes a sequence, root excluded; -1: the policy's own (clover 4, chain all, static
                         // all, auto no cap)
  bool typical = false;  // lossy verification
  bool suffix = false;   // also guess what followed earlier places like the present one
  bool suffix_answers = false;  // .. in answers that are finished, too
  int64_t max_batch = 16;       // sequences decoded at once
  int64_t kv_memory = 0;      // bytes for keys and values; 0: a quarter of what is free, of a GPU four fifths
  int64_t page_size = 64;     // tokens a page
  int64_t prefill_chunk = 0;  // prompt tokens a pass, of all sequences that join; 0: as many as pay there
  bool graphs = true;         // on a GPU, replay decode passes and drafting as graphs
  CostFile costs;             // what `auto` knows of earlier runs
  std::optional<std::vector<int64_t>> end_ids;  // tokens that end an answer; none: default_end_ids
};

/// Running totals of an engine.  Tokens per step = (tokens - first tokens) / passes, summed over sequences.
struct EngineStats {
  int64_t requests = 0;      // finished
  int64_t tokens = 0;        // emitted by finished and running requests
  int64_t first_tokens = 0;  // of which prefill yielded
  int64_t passes = 0;        // decode passes summed over sequences
  int64_t steps = 0;         // decode passes of the batch
  int64_t steps_ahead = 0;   // of which had begun before the last one's tokens were known (on a GPU)
  int64_t rows = 0;          // rows the decode passes computed, without those of prompts
  int64_t prompt_tokens = 0;
  int64_t shared_prompt_tokens = 0;  // of which were taken from requests that began alike
  int64_t prompt_rows = 0;           // rows of prompts, and of answers read again, that passes computed
  int64_t prompt_passes = 0;         // passes with such rows
  int64_t mixed_passes = 0;          // of which also decoded
  int64_t sent_away = 0;             // times a request had to leave because keys and values had no room
  int64_t graphs = 0;                // of decode passes and of drafting, recorded on a GPU
  double graph_seconds = 0;          // which recording them took
  int64_t graph_bytes = 0;           // of the GPU's memory
  bool graphs_given_up = false;      // something could not be recorded, and what came later was not tried
  int64_t bytes_read = 0;            // weights, keys and values that decoding had to read, at least
  // A pass that reads prompts and decodes counts for both by their rows.
  double prefill_seconds = 0;
  double decode_seconds = 0;  // all of decode steps, drafting included, calibration and recording not
  double calibration_seconds = 0;
  double target_seconds = 0, drafter_seconds = 0, grow_seconds = 0,
         verify_seconds = 0;  // parts of decode_seconds
  std::vector<int64_t> accepted_histogram;
  double tokens_per_step() const { return passes ? double(tokens - first_tokens) / double(passes) : 0; }
};

}  // namespace clover::infer
