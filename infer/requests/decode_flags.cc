#include "infer/requests/decode_flags.h"

#include <algorithm>

#include "data/files/error.h"
#include "infer/program/command_line.h"
#include "infer/tree/growth_policies.h"

namespace clover::infer {

namespace {

/// --NAME-width and --NAME-length, where the policy has them.
void add_size_options(CLI::App& app, const GrowthPolicy& policy, TreeSizes& sizes, const std::string& group) {
  const std::string name = policy.name;
  if (policy.default_width > 0)
    app.add_option("--" + name + "-width", sizes[name].width,
                   name + ": " + policy.width_help + " (0: " + std::to_string(policy.default_width) + ")")
        ->type_name("N")
        ->check(CLI::Range(int64_t{0}, policy.max_width))
        ->group(group);
  if (policy.max_depth > 0)
    app.add_option("--" + name + "-length", sizes[name].depth,
                   name +
                       ": depth of the tree in guesses, no deeper than the heads can guess (0: as deep as "
                       "they are trained for)")
        ->type_name("N")
        ->check(CLI::Range(int64_t{0}, policy.max_depth))
        ->group(group);
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingParams& sampling) {
  const std::string group = "Answers";
  app.add_option("--max-tokens", sampling.max_tokens, "Longest answer, in tokens")
      ->type_name("N")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option("--temperature", sampling.rule.temperature, "0: always the most probable token")
      ->type_name("X")
      ->group(group);
  app.add_option("--top-p", sampling.rule.top_p, "Sample from the most probable tokens that hold this mass")
      ->type_name("X")
      ->group(group);
  app.add_option("--top-k", sampling.rule.top_k, "Sample from the K most probable tokens; 0 or -1: all")
      ->type_name("K")
      ->transform([](std::string given) { return given == "-1" ? std::string("0") : given; })
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option("--min-p", sampling.rule.min_p,
                 "Sample from the tokens of at least this share of the most probable one's probability")
      ->type_name("X")
      ->group(group);
  app.add_option("--seed", sampling.seed, "Seed of sampling; the same request gives the same answer")
      ->type_name("N")
      ->check(whole_number<uint64_t>())
      ->group(group);
  app.add_option("--stop", sampling.stop, "Texts that end an answer (and are not part of it)")
      ->type_name("TEXT")
      ->group(group);
  add_control_options(app, sampling.controls);
}

void add_end_option(CLI::App& app, DecodeFlags& flags) {
  app.add_option("--end-tokens", flags.end_tokens,
                 "Tokens that end an answer, by text or id; model: those its config names; tokenizer: its "
                 "eos_token; none (default: model tokenizer)")
      ->type_name("TOKEN")
      ->group("Answers");
}

void add_draft_options(CLI::App& app, DecodeFlags& flags) {
  const std::string group = "Drafting";
  app.add_option("--draft", flags.draft,
                 "Growth policy: " + growth_policies_help() + "; never changes tokens")
      ->type_name("NAME")
      ->group(group);
  app.add_option(
         "--budget", flags.budget,
         std::string(
             "Guesses of the heads to check per sequence and step, at most 255, under auto 63, and in "
             "a step of many sequences as many as share 1024 rows with them; beside guesses from the "
             "text 8 fewer, under auto 16 (default: ") +
             default_budgets_help() + "; 0: off)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{4096}))
      ->group(group);
  add_tree_options(app, flags, group);
  app.add_option(
         "--verify", flags.verify,
         "match: exactly the target's answers; typical: faster, lossy, and marked so in the output: it keeps "
         "every guess that is likely enough and draws only what comes behind, so that seeds make less "
         "of a difference; at temperature 0 both are the same")
      ->type_name("NAME")
      ->check(CLI::IsMember({"match", "typical"}))
      ->group(group);
  add_suffix_options(app, flags);
}

void add_tree_options(CLI::App& app, DecodeFlags& flags, const std::string& group) {
  app.add_option("--tree-top-p", flags.tree_top_p, "clover: guesses of a node kept within this mass")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  app.add_option("--tree-cut", flags.tree_cut,
                 "clover: guesses below this share of their node's best are dropped")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  for (const GrowthPolicy& policy : growth_policies) add_size_options(app, policy, flags.tree_sizes, group);
}

void add_suffix_options(CLI::App& app, DecodeFlags& flags) {
  app.add_option("--suffix", flags.suffix,
                 "Guesses copied from the text so far: auto (under --draft auto, where they pay), on, off")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->group("Drafting");
  app.add_flag("--suffix-answers", flags.suffix_answers,
               "Copy from finished answers of the job too: for jobs whose answers resemble each other")
      ->group("Drafting");
}

void add_scheduling_options(CLI::App& app, DecodeFlags& flags) {
  const std::string group = "Scheduling";
  app.add_option("--max-batch", flags.max_batch, "Sequences decoded at once")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->group(group);
  app.add_option("--kv-memory", flags.kv_memory,
                 "Memory for keys and values, in bytes or as 512MB, 4GB; 0: a quarter of what is free, of a "
                 "GPU four fifths")
      ->type_name("BYTES")
      ->transform(byte_count())
      ->group(group);
  add_prefill_option(app, flags, group);
}

void add_prefill_option(CLI::App& app, DecodeFlags& flags, const std::string& group) {
  app.add_option("--prefill-chunk", flags.prefill_chunk,
                 "Prompt tokens read in one pass, of all requests that join; whoever decodes waits no longer "
                 "than for such a pass; 0: 256, on a GPU 2048 or what its memory allows")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->group(group);
}

void add_graphs_option(CLI::App& app, DecodeFlags& flags) {
  app.add_flag(
         "--no-graphs", flags.no_graphs,
         "On a GPU, start the kernels of every pass and draft one by one instead of as recorded graphs: "
         "slower, the same tokens")
      ->group("Model");
}

bool suffix_wanted(const std::string& suffix, Policy policy) {
  const GrowthPolicy& row = growth_policy(policy);
  return row.drafts && (suffix == "on" || (suffix == "auto" && row.uses_cost_model));
}

void check_heads_for(const std::string& draft, bool has_heads) {
  if (!has_heads && growth_policy(parse_policy(draft)).needs_heads)
    throw data::InputError("--draft " + draft + ": expected --heads DIR to draft with, found none");
}

void check_tree_sizes(const TreeSizes& sizes, std::span<const std::string> drafts) {
  std::string in_use;
  for (const std::string& draft : drafts) in_use += (in_use.empty() ? "" : ",") + draft;
  for (const auto& [name, size] : sizes) {
    if ((size.width == 0 && size.depth == 0) || std::ranges::count(drafts, name) > 0) continue;
    throw data::InputError("--" + name + (size.width > 0 ? "-width" : "-length") + ": expected --draft " +
                           name + ", whose trees it sizes, found --draft " + in_use +
                           "; give that or leave it out");
  }
}

GrowthRule growth_rule(const std::string& draft, const GrowthRule& base, const TreeSizes& sizes) {
  GrowthRule rule = base;
  rule.policy = parse_policy(draft);
  const auto entry = sizes.find(draft);
  const TreeSize size = entry == sizes.end() ? TreeSize{} : entry->second;
  rule.width = size.width;
  rule.depth = size.depth;
  return rule;
}

EngineOptions to_engine_options(const DecodeFlags& flags, bool has_heads) {
  check_sampling(flags.sampling);
  check_tree_sizes(flags.tree_sizes, {&flags.draft, 1});
  EngineOptions options;
  options.growth =
      growth_rule(flags.draft, {.top_p = flags.tree_top_p, .relative_cut = flags.tree_cut}, flags.tree_sizes);
  check_heads_for(flags.draft, has_heads);
  if (flags.budget == 0) options.growth.policy = plain_policy;
  options.budget = flags.budget;
  options.typical = flags.verify == "typical";
  options.suffix = suffix_wanted(flags.suffix, options.growth.policy);
  options.suffix_answers = flags.suffix_answers;
  if (options.suffix_answers && !options.suffix)
    throw data::InputError(
        "--suffix-answers: expected guesses from the text to be on, found them off; give --suffix on, or "
        "--draft auto");
  options.max_batch = flags.max_batch;
  options.kv_memory = static_cast<int64_t>(flags.kv_memory);
  options.prefill_chunk = flags.prefill_chunk;
  options.graphs = !flags.no_graphs;
  options.end_ids = flags.end_ids;
  return options;
}

nlohmann::json resolved_budget(const GrowthRule& rule, int64_t budget) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  if (!policy.drafts) return 0;
  if (budget >= 0) return std::min(budget, policy.max_budget);
  if (policy.default_budget >= 0) return policy.default_budget;
  return nullptr;
}

}  // namespace clover::infer
