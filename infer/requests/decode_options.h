#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/request_fields.h"

namespace clover::infer {

/// Options of decoding, as they stand on the command line.
struct DecodeOptions {
  std::string draft = "auto";
  int64_t budget = -1;  // -1: the policy's own
  double tree_top_p = GrowthRule{}.top_p;
  double tree_cut = GrowthRule{}.relative_cut;
  std::string verify = "match";
  std::string suffix = "auto";
  bool suffix_answers = false;
  int64_t max_batch = 16;
  uint64_t kv_memory = 0;
  int64_t prefill_chunk = 0;
  bool no_graphs = false;
  SamplingFields sampling;
  std::vector<std::string> end_tokens;          // as named; empty: the model's and the tokenizer's
  std::optional<std::vector<int64_t>> end_ids;  // .. in a model that is loaded
};

/// --temperature, --top-p, --top-k, --min-p, --seed, --max-tokens, --stop, and those of control_fields.h.
void add_sampling_options(CLI::App& app, SamplingFields& sampling);

/// --end-tokens.
void add_end_option(CLI::App& app, DecodeOptions& options);

/// --draft, --budget, the tree's own parameters, --verify, --suffix.
void add_draft_options(CLI::App& app, DecodeOptions& options);

/// --tree-top-p, --tree-cut.
void add_tree_options(CLI::App& app, DecodeOptions& options, const std::string& group);

/// --suffix, --suffix-answers.
void add_suffix_option(CLI::App& app, DecodeOptions& options);

/// --max-batch, --kv-memory, --prefill-chunk.
void add_scheduling_options(CLI::App& app, DecodeOptions& options);

/// --prefill-chunk.
void add_prefill_option(CLI::App& app, DecodeOptions& options, const std::string& group);

/// --no-graphs.
void add_graphs_option(CLI::App& app, DecodeOptions& options);

/// What the engine needs; InputError for a policy that is unknown, not built, or asks for heads that are not
/// there.
EngineOptions engine_options(const DecodeOptions& options, bool with_heads);

/// Budget a policy uses when none is given; null: no limit of its own.
nlohmann::json resolved_budget(const GrowthRule& rule, int64_t budget);

/// Whether --suffix auto|on|off asks for guesses from the text so far under `policy`.
bool suffix_wanted(const std::string& suffix, Policy policy);

}  // namespace clover::infer
