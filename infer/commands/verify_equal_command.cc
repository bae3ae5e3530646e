// `clover-infer verify-equal`: checks that speculation changes no token.  It goes on in
// infer/bench/verify_equal.h (decodes and compares) and infer/bench/bench.h (the settings to compare).

#include <array>
#include <cstdio>
#include <utility>

#include "data/files/files.h"
#include "infer/bench/verify_equal.h"
#include "infer/commands/commands.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/report.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct VerifyEqualOptions {
  ModelOptions model;
  DecodeFlags decode;
  std::string input, report;
  std::vector<std::string> policies;  // names of growth policies
  std::vector<int64_t> budgets = {1, 4, 16};
  std::vector<int64_t> batch_sizes = {1, 3, 16};
};

/// Tokens per prefill chunk in those configurations that get other pages and chunks, in turn
/// (configurations_to_compare).
constexpr std::array<int64_t, 3> prefill_chunks{37, 7, 301};

/// The growth policies that are compared if --draft names none: all that work with or without heads, except
/// plain decoding.
std::vector<std::string> default_policies(bool has_heads) {
  std::vector<std::string> names;
  for (const GrowthPolicy& policy : growth_policies)
    if (policy.drafts && (has_heads || !policy.needs_heads)) names.push_back(policy.name);
  return names;
}

/// Such as "auto, with heads also chain, static and clover".
std::string default_policies_help() {
  std::string always, with_heads;
  const std::vector<std::string> names = default_policies(true);
  for (const std::string& name : names) {
    std::string& list = growth_policy(parse_policy(name)).needs_heads ? with_heads : always;
    list += (list.empty() ? "" : name == names.back() ? " and " : ", ") + name;
  }
  return always + ", with heads also " + with_heads;
}

/// The configurations to compare with plain decoding.  Pages, prefill chunks and CUDA graphs must not change
/// tokens either: every second configuration has other pages and chunks, every third one no graphs.
std::vector<BenchConfiguration> configurations_to_compare(const VerifyEqualOptions& options,
                                                          const std::vector<NamedDrafter>& drafters) {
  BenchPlan plan;
  DecodeFlags decode = options.decode;
  plan.tree_sizes = std::exchange(decode.tree_sizes, {});  // of plan.policies, not only of decode.draft
  plan.base = to_engine_options(decode, false);
  plan.policies = options.policies;
  plan.suffix = options.decode.suffix;
  if (plan.policies.empty()) plan.policies = default_policies(!options.model.heads.empty());
  plan.budgets = options.budgets;
  plan.batch_sizes = options.batch_sizes;
  std::vector<BenchConfiguration> configurations = plan_configurations(plan, drafters);
  for (size_t i = 1; i < configurations.size(); i += 2) {
    configurations[i].options.page_size = 16;
    configurations[i].options.prefill_chunk = prefill_chunks[i / 2 % prefill_chunks.size()];
  }
  for (size_t i = 2; i < configurations.size(); i += 3) configurations[i].options.graphs = false;
  return configurations;
}

json as_json(const EqualityReport& report) {
  json differences = json::array();
  for (const Difference& difference : report.differences) {
    differences.push_back({{"configuration", difference.configuration},
                           {"line", difference.line},
                           {"position", difference.position},
                           {"plain_token", difference.plain_token},
                           {"other_token", difference.other_token},
                           {"top_two_gap", difference.top_two_gap ? json(*difference.top_two_gap) : json()}});
  }
  return {
      {"configurations", report.configurations}, {"requests", report.requests}, {"differences", differences}};
}

int verify_equal(VerifyEqualOptions options) {
  // A first plan, with names of drafters only, so that a wrong name is refused before the model is read.
  std::vector<NamedDrafter> drafters;
  if (!options.model.heads.empty()) drafters.push_back({options.model.heads, nullptr});
  configurations_to_compare(options, drafters);
  check_report_file(options.report, {options.input, options.model.target, options.model.heads});
  const std::vector<BatchLine> lines = read_batch_file(options.input, options.decode.sampling);
  const LoadedModel model = load_model(options.model);
  options.decode.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  if (!drafters.empty()) drafters[0].drafter = model.drafter;
  const EqualityReport report =
      compare_outputs(model, configurations_to_compare(options, drafters), lines,
                      [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  if (!options.report.empty()) data::write_file_atomically(options.report, as_json(report).dump(2) + "\n");
  if (report.differences.empty()) {
    std::printf("equal: %lld requests, %lld settings\n", static_cast<long long>(report.requests),
                static_cast<long long>(report.configurations));
    return exit_done;
  }
  const Difference& first = report.differences.front();
  std::printf("different: line %lld, token %lld: %lld in plain decoding, %lld with %s",
              static_cast<long long>(first.line), static_cast<long long>(first.position),
              static_cast<long long>(first.plain_token), static_cast<long long>(first.other_token),
              first.configuration.c_str());
  if (first.top_two_gap)
    std::printf(" (the target's two best logits there are %.3g apart)", *first.top_two_gap);
  std::printf("; %zu differences in all\n", report.differences.size());
  return exit_failed;
}

/// What --help prints after the options.
constexpr const char* verify_equal_help_footer = R"(
Decodes the input plainly, one request at a time, then with every policy, budget and batch size, and compares
token ids.  Exit code 0: all equal; 1: something differs (the first difference is printed).

Example:
  clover-infer verify-equal --target models/SmolLM2-135M-Instruct --heads heads-clover --input questions.jsonl
)";

}  // namespace

Action declare_verify_equal(CLI::App& app) {
  auto options = std::make_shared<VerifyEqualOptions>();
  options->decode.sampling.max_tokens = 64;
  add_model_options(app, options->model, HeadsOption::one);
  add_context_option(app, options->model);
  app.add_option("--input", options->input, "Requests as for batch")->required()->type_name("FILE");
  app.add_option("--json", options->report, "Write every difference here")->type_name("FILE");
  app.add_option("--draft", options->policies, "Growth policies (default: " + default_policies_help() + ")")
      ->delimiter(',')
      ->type_name("NAME,...");
  add_numbers_option(app, "--budgets", options->budgets, "Budgets of " + policies_with_budgets(), 1, 4096);
  add_numbers_option(app, "--batch-sizes", options->batch_sizes, "Sequences decoded at once", 1, 65536);
  add_tree_options(app, options->decode, "Drafting");
  add_graphs_option(app, options->decode);
  add_suffix_options(app, options->decode);
  add_sampling_options(app, options->decode.sampling);
  add_end_option(app, options->decode);
  app.footer(verify_equal_help_footer);
  return [options] {
    watch_for_interrupts();
    return verify_equal(*options);
  };
}

}  // namespace clover::infer
