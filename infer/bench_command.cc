#include <cstdio>

#include "data/error.h"
#include "infer/bench.h"
#include "infer/commands.h"
#include "infer/decode_options.h"
#include "infer/exit_code.h"
#include "infer/interrupt.h"
#include "infer/report.h"
#include "infer/row_bench.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct BenchOptions {
  ModelOptions model;
  DecodeOptions decode;
  std::vector<std::string> heads;
  std::string input, report;
  std::vector<std::string> drafts;
  std::vector<int64_t> budgets;
  std::vector<int64_t> batch_sizes = {1, 4, 8, 16};
  std::vector<int64_t> rows;
  int64_t context = 512;
  int64_t rounds = 5;
};

std::vector<NamedDrafter> load_drafters(const BenchOptions& options, const LoadedModel& model) {
  std::vector<NamedDrafter> drafters;
  for (const std::string& folder : options.heads) {
    drafters.push_back({folder, load_drafter(folder, *model.target, model.prompts->tokenizer())});
  }
  return drafters;
}

int bench_rows(const BenchOptions& options) {
  if (!options.input.empty()) {
    throw data::InputError("--rows measures the target alone: expected no --input, found " + options.input);
  }
  check_report_file(options.report);
  const LoadedModel model = load_model(options.model);
  const json entries = run_row_bench(*model.target, options.rows, options.context, options.rounds);
  const json report = report_of(entries, *model.target);
  write_report(options.report, report);
  std::fputs(row_bench_table(entries, report["read_bandwidth"].get<double>()).c_str(), stderr);
  return exit_done;
}

int bench_requests(const BenchOptions& options) {
  if (options.input.empty())
    throw data::InputError("expected --input FILE.jsonl (or --rows N,...), found neither");
  BenchPlan plan;
  plan.base = engine_options(options.decode, false);
  plan.budgets = options.budgets;
  plan.batch_sizes = options.batch_sizes;
  plan.rounds = options.rounds;
  plan.drafts = options.drafts;
  plan.suffix = options.decode.suffix;
  if (plan.drafts.empty()) {
    plan.drafts = options.heads.empty() ? std::vector<std::string>{"off", "auto"}
                                        : std::vector<std::string>{"off", "auto", "clover"};
  }
  // Refuses what cannot be planned or written before the model is read.
  check_report_file(options.report);
  std::vector<NamedDrafter> names;
  for (const std::string& folder : options.heads) names.push_back({folder, nullptr});
  plan_configurations(plan, names);
  const std::vector<BatchLine> lines = read_batch_file(options.input, options.decode.sampling);
  const LoadedModel model = load_model(options.model);
  const std::vector<NamedDrafter> drafters = load_drafters(options, model);
  const json entries = run_bench(model, plan_configurations(plan, drafters), lines, options.rounds,
                                 [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  const json report = report_of(entries, *model.target);
  write_report(options.report, report);
  std::fputs(bench_table(entries, report["read_bandwidth"].get<double>()).c_str(), stderr);
  return exit_done;
}

}  // namespace

Action declare_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  options->decode.sampling.max_tokens = 128;
  add_model_options(app, options->model, HeadsOption::none);
  app.add_option("--heads", options->heads, "Folders of drafter heads to compare")
      ->type_name("DIR")
      ->group("Model");
  app.add_option("--json", options->report, "Write all figures here")->type_name("FILE");
  app.add_option("--rounds", options->rounds,
                 "Times everything is measured; settings alternate within a round")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  const std::string what = "What to measure";
  app.add_option("--input", options->input, "Requests as for batch")->type_name("FILE")->group(what);
  app.add_option("--batch-sizes", options->batch_sizes, "Sequences decoded at once")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->group(what);
  app.add_option("--draft", options->drafts,
                 "Growth policies (default: off,auto and with heads clover); off is always measured")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(what);
  app.add_option("--budgets", options->budgets,
                 "Guesses checked per sequence and step, for clover and static")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->group(what);
  add_tree_options(app, options->decode, what);
  add_suffix_option(app, options->decode);
  app.add_option("--kv-memory", options->decode.kv_memory,
                 "Memory for keys and values; 0: what the input needs")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false))
      ->group(what);
  add_sampling_options(app, options->decode.sampling);
  const std::string by_rows = "Cost of a step by rows (instead of --input)";
  app.add_option("--rows", options->rows, "Rows of one step of the target")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->group(by_rows);
  app.add_option("--context", options->context, "Tokens cached before the step")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->group(by_rows);
  app.footer(
      "\nThe table goes to stderr, all figures to --json.  tokens/s counts decoding, not "
      "prefill.\n\nExamples:\n"
      "  clover-infer bench --target models/SmolLM2-135M-Instruct --heads heads-clover heads-medusa \\\n"
      "      --input questions.jsonl --draft off,auto,clover --budgets 2,4,8 --batch-sizes 1,8 --json "
      "speed.json\n"
      "  clover-infer bench --target models/SmolLM2-135M-Instruct --rows 1,5,16 --context 512 --json "
      "rows.json\n");
  return [options] {
    watch_for_interrupts();
    return options->rows.empty() ? bench_requests(*options) : bench_rows(*options);
  };
}

}  // namespace clover::infer
