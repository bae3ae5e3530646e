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

/// The values of --NAME-width and --NAME-length, where NAME is a growth policy.
struct TreeSize {
  int64_t width = 0;  // 0: GrowthPolicy::default_width
  int64_t depth = 0;  // 0: the depth that the heads are trained for
};
using TreeSizes = std::map<std::string, TreeSize>;  // by name of the growth policy

/// The values of the command-line options for decoding.  to_engine_options converts them to EngineOptions.
struct DecodeFlags {
  std::string draft = "auto";              // name of a growth policy (infer/tree/growth_policies.h)
  int64_t budget = -1;                     // nodes of a tree, root excluded; -1: GrowthPolicy::default_budget
  double tree_top_p = GrowthRule{}.top_p;  // GrowthRule::top_p
  double tree_cut = GrowthRule{}.relative_cut;  // GrowthRule::relative_cut
  TreeSizes tree_sizes;
  std::string verify = "match";  // match or typical
  std::string suffix = "auto";   // whether guesses are copied from the text so far: auto, on or off
  bool suffix_answers = false;   // guesses are also copied from finished answers
  int64_t max_batch = 16;        // sequences decoded at once
  uint64_t kv_memory = 0;        // bytes; 0: the default
  int64_t prefill_chunk = 0;     // tokens; 0: the default
  bool no_graphs = false;        // no CUDA graphs
  SamplingParams sampling;
  std::vector<std::string> end_tokens;          // texts or ids; empty: the model's and the tokenizer's
  std::optional<std::vector<int64_t>> end_ids;  // their ids, once the model is loaded
};

// Each of the following functions declares the options that its comment names.

/// --temperature, --top-p, --top-k, --min-p, --seed, --max-tokens, --stop, and the options of
/// add_control_options.
void add_sampling_options(CLI::App& app, SamplingParams& sampling);

/// --end-tokens.
void add_end_option(CLI::App& app, DecodeFlags& flags);

/// --draft, --budget, --verify, and the options of add_tree_options and add_suffix_options.
void add_draft_options(CLI::App& app, DecodeFlags& flags);

/// --tree-top-p, --tree-cut, and --NAME-width and --NAME-length for the policies that have them.
void add_tree_options(CLI::App& app, DecodeFlags& flags, const std::string& group);

/// --suffix, --suffix-answers.
void add_suffix_options(CLI::App& app, DecodeFlags& flags);

/// --max-batch, --kv-memory, --prefill-chunk.
void add_scheduling_options(CLI::App& app, DecodeFlags& flags);

/// --prefill-chunk.
void add_prefill_option(CLI::App& app, DecodeFlags& flags, const std::string& group);

/// --no-graphs.
void add_graphs_option(CLI::App& app, DecodeFlags& flags);

/// InputError when `sizes` has a size for a growth policy that is not among `drafts`, the names of the
/// policies in use.
void check_tree_sizes(const TreeSizes& sizes, std::span<const std::string> drafts);

/// `base` with the growth policy named `draft` and the sizes given for it.
GrowthRule growth_rule(const std::string& draft, const GrowthRule& base, const TreeSizes& sizes);

/// InputError when the growth policy named `draft` needs heads and `has_heads` is false.
void check_heads_for(const std::string& draft, bool has_heads);

/// The engine's options.  InputError for an unknown growth policy, and for one that needs heads when there
/// are none.
EngineOptions to_engine_options(const DecodeFlags& flags, bool has_heads);

/// The most guesses that a tree can have when --budget is `budget`, for reports; null: no limit.  Steps of
/// many sequences, and guesses from the text in the same tree, leave room for fewer.
nlohmann::json resolved_budget(const GrowthRule& rule, int64_t budget);

/// Whether guesses are copied from the text so far under `policy`.  `suffix`: auto, on or off.
bool suffix_wanted(const std::string& suffix, Policy policy);

}  // namespace clover::infer
