#include <array>
#include <cstdio>

#include "data/files/files.h"
#include "infer/bench/verify_equal.h"
#include "infer/commands/commands.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/decode_options.h"
#include "infer/requests/report.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct VerifyEqualOptions {
  ModelOptions model;
  DecodeOptions decode;
  std::string input, report;
  std::vector<std::string> drafts;
  std::vector<int64_t> budgets = {1, 4, 16};
  std::vector<int64_t> batch_sizes = {1, 3, 16};
};

constexpr std::array<int64_t, 3> prefill_chunks{37, 7, 301};

// Every second setting also changes pages and prefill chunks, every third does without graphs: none of it may
// show.
std::vector<BenchConfiguration> varied(const VerifyEqualOptions& options,
                                       const std::vector<NamedDrafter>& drafters) {
  BenchPlan plan;
  plan.base = engine_options(options.decode, false);
  plan.drafts = options.drafts;
  plan.suffix = options.decode.suffix;
  if (plan.drafts.empty()) {
    plan.drafts = {"auto"};
    if (!options.model.heads.empty()) plan.drafts = {"auto", "chain", "static", "clover"};
  }
  plan.budgets = options.budgets;
  plan.batch_sizes = options.batch_sizes;
  std::vector<BenchConfiguration> configurations = plan_configurations(plan, drafters);
  for (size_t i = 1; i < configurations.size(); i += 2) {
    configurations[i].options.page_size = 16;
    configurations[i].options.prefill_chunk = prefill_chunks[i / 2 % prefill_chunks.size()];
  }
  for (size_t i = 2; i < configurations.size(); i += 3) configurations[i].options.graphs = false;  // of a GPU
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
  // A first plan without drafters refuses wrong names before the model is read.
  std::vector<NamedDrafter> drafters;
  if (!options.model.heads.empty()) drafters.push_back({options.model.heads, nullptr});
  varied(options, drafters);
  check_report_file(options.report, {options.input, options.model.target, options.model.heads});
  const std::vector<BatchLine> lines = read_batch_file(options.input, options.decode.sampling);
  const LoadedModel model = load_model(options.model);
  options.decode.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  if (!drafters.empty()) drafters[0].drafter = model.drafter;
  const EqualityReport report =
      compare_outputs(model, varied(options, drafters), lines,
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

}  // namespace

Action declare_verify_equal(CLI::App& app) {
  auto options = std::make_shared<VerifyEqualOptions>();
  options->decode.sampling.max_tokens = 64;
  add_model_options(app, options->model, HeadsOption::one);
  add_context_option(app, options->model);
  app.add_option("--input", options->input, "Requests as for batch")->required()->type_name("FILE");
  app.add_option("--json", options->report, "Write every difference here")->type_name("FILE");
  app.add_option("--draft", options->drafts,
                 "Growth policies (default: auto, with heads also chain, static and clover)")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--budgets", options->budgets, "Budgets of clover and static")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--batch-sizes", options->batch_sizes, "Sequences decoded at once")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  add_graphs_option(app, options->decode);
  add_suffix_option(app, options->decode);
  add_sampling_options(app, options->decode.sampling);
  add_end_option(app, options->decode);
  app.footer(
      "\nDecodes the input plainly, one request at a time, then with every policy, budget and batch size, "
      "and compares\n"
      "token ids.  Exit code 0: all equal; 1: something differs (the first difference is "
      "printed).\n\nExample:\n"
      "  clover-infer verify-equal --target models/SmolLM2-135M-Instruct --heads heads-clover --input "
      "questions.jsonl\n");
  return [options] {
    watch_for_interrupts();
    return verify_equal(*options);
  };
}

}  // namespace clover::infer
