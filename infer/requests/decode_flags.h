#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/sampling_params.h"

namespace clover::infer {

/// The size of trees that a policy has options for, --beam-width and the like; 0: the policy's own.
struct TreeSize {
  int64_t width = 0, depth = 0;  // --NAME-width, --NAME-length
};
using TreeSizes = std::map<std::string, TreeSize>;  // by name of the policy

/// The options of decoding as they are written on the command line.  to_engine_options turns them into the
/// engine's.
struct DecodeFlags {
  std::string draft = "auto";  // name of a growth policy (growth_policies.h)
  // Nodes per sequence, root excluded; -1: GrowthPolicy::default_budget (infer/tree/growth_policies.h).
  int64_t budget = -1;
  double tree_top_p = GrowthRule{}.top_p;
  double tree_cut = GrowthRule{}.relative_cut;
  TreeSizes tree_sizes;
  std::string verify = "match";  // match or typical
  std::string suffix = "auto";   // auto, on or off
  bool suffix_answers = false;
  int64_t max_batch = 16;     // sequences decoded at once
  uint64_t kv_memory = 0;     // bytes; 0: the default
  int64_t prefill_chunk = 0;  // tokens; 0: the default
  bool no_graphs = false;
  SamplingParams sampling;
  std::vector<std::string> end_tokens;          // as written; empty: the model's and the tokenizer's
  std::optional<std::vector<int64_t>> end_ids;  // their ids, once the model is loaded
};

/// Each declares the options that its comment names.

/// --temperature, --top-p, --top-k, --min-p, --seed, --max-tokens, --stop, and those of control_fields.h.
void add_sampling_options(CLI::App& app, SamplingParams& sampling);

/// --end-tokens.
void add_end_option(CLI::App& app, DecodeFlags& flags);

/// --draft, --budget, those of add_tree_options, --verify, --suffix, --suffix-answers.
void add_draft_options(CLI::App& app, DecodeFlags& flags);

/// --tree-top-p, --tree-cut and, of every policy that has them, --NAME-width and --NAME-length.
void add_tree_options(CLI::App& app, DecodeFlags& flags, const std::string& group);

/// --suffix, --suffix-answers.
void add_suffix_option(CLI::App& app, DecodeFlags& flags);

/// --max-batch, --kv-memory, --prefill-chunk.
void add_scheduling_options(CLI::App& app, DecodeFlags& flags);

/// --prefill-chunk.
void add_prefill_option(CLI::App& app, DecodeFlags& flags, const std::string& group);

/// --no-graphs.
void add_graphs_option(CLI::App& app, DecodeFlags& flags);

/// InputError when a size is given of a policy that is not among `drafts`.
void check_tree_sizes(const TreeSizes& sizes, std::span<const std::string> drafts);

/// The rule of growing trees by the policy of that name.
GrowthRule growth_rule(const std::string& draft, const GrowthRule& base, const TreeSizes& sizes);

/// InputError when `draft` names a policy that needs heads and there are none.
void check_heads_for(const std::string& draft, bool has_heads);

/// The engine's options.  InputError for an unknown growth policy, and for one that needs heads when there
/// are none.
EngineOptions to_engine_options(const DecodeFlags& flags, bool has_heads);

/// The most guesses a tree can have when --budget is `budget`, the policy's own bound included; null: no
/// other limit is set.  Steps of many sequences, and guesses from the text beside them, leave room for fewer.
nlohmann::json resolved_budget(const GrowthRule& rule, int64_t budget);

/// Whether --suffix (auto, on or off) turns on drafting from the text so far under `policy`.
bool suffix_wanted(const std::string& suffix, Policy policy);

}  // namespace clover::infer
