// `clover-infer bench`: measures speed.  With --input it measures requests (infer/bench/bench.h), with --rows
// or --random-weights the passes and drafts of a decoding step (infer/bench/step_bench.h).  From the latter
// --assume-acceptance projects tokens per second (infer/bench/projection.h).

#include <ATen/ops/arange.h>

#include <cstdio>
#include <map>
#include <utility>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/bench/bench.h"
#include "infer/bench/projection.h"
#include "infer/bench/step_bench.h"
#include "infer/bench/training_cost.h"
#include "infer/commands/commands.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/report.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "model/drafters/factory.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct BenchOptions {
  ModelOptions model;
  DecodeFlags decode;
  std::vector<std::string> heads;     // folders
  std::string input, json_file;       // --input, --json
  std::vector<std::string> policies;  // names of growth policies
  std::vector<int64_t> budgets;
  std::vector<int64_t> batch_sizes;  // empty: 1,4,8,16 with requests, 1 without
  int64_t rounds = 6;                // even, because every second round runs the settings in reverse
  // Only for steps without requests:
  std::vector<int64_t> rows;                // as StepBenchPlan::rows; empty: 1,5
  int64_t context = 512;                    // as StepBenchPlan::context
  std::vector<std::string> random_heads;    // kinds of drafters
  std::vector<int64_t> draft_vocabs = {0};  // sizes for random_heads; 0: the target's vocabulary
  std::string random_weights;               // a config.json
  std::string assumed_acceptance, trace;    // files
};

std::vector<NamedDrafter> load_drafters(const BenchOptions& options, const LoadedModel& model) {
  std::vector<NamedDrafter> drafters;
  for (const std::string& folder : options.heads) {
    drafters.push_back({folder, load_drafter(folder, *model.target, model.prompt_encoder->tokenizer())});
  }
  return drafters;
}

/// An untrained drafter of each kind of --random-heads and each size of --draft-vocab.
std::vector<NamedDrafter> random_drafters(const BenchOptions& options, const model::Target& target) {
  std::vector<NamedDrafter> drafters;
  for (const std::string& kind : options.random_heads) {
    for (const int64_t size : options.draft_vocabs) {
      const int64_t draft_vocab = std::min(size, target.config().vocab);
      const at::Tensor token_map = draft_vocab > 0 ? at::arange(draft_vocab, at::kLong) : at::Tensor();
      NamedDrafter named_drafter{"random " + kind,
                                 model::make_drafter(kind, nlohmann::json::object(), target.view(), token_map,
                                                     /*trainable=*/false, /*seed=*/0)};
      named_drafter.drafter->freeze(target.dtype());
      drafters.push_back(std::move(named_drafter));
    }
  }
  return drafters;
}

/// Prints the measurements and, with --assume-acceptance, the projection; writes both to --json.
void report_steps(const BenchOptions& options, const model::Target& target, const json& entries,
                  const std::map<std::string, Acceptance>& acceptance) {
  json report = make_report(entries, target);
  std::fputs(step_bench_table(entries, report["read_bandwidth"].get<double>()).c_str(), stderr);
  if (!options.assumed_acceptance.empty()) {
    report["projection"] = project_speed(entries, acceptance);
    std::fputs(projection_table(report["projection"]).c_str(), stderr);
  }
  write_report(options.json_file, report);
}

/// The files that the command reads, which its report must not overwrite.
std::vector<std::string> input_files(const BenchOptions& options) {
  std::vector<std::string> files = options.heads;
  files.insert(files.end(),
               {options.input, options.model.target, options.random_weights, options.assumed_acceptance});
  return files;
}

StepBenchPlan step_plan(const BenchOptions& options) {
  StepBenchPlan plan;
  plan.rows = options.rows.empty() ? std::vector<int64_t>{1, 5} : options.rows;
  plan.context = options.context;
  plan.rounds = options.rounds;
  plan.graphs = !options.decode.no_graphs;
  plan.trace = options.trace;
  if (!options.batch_sizes.empty()) plan.batch_sizes = options.batch_sizes;
  return plan;
}

/// Measures the passes and drafts of a step, without requests.
int bench_steps(const BenchOptions& options) {
  if (!options.input.empty())
    throw data::InputError(
        "--rows and --random-weights measure steps without requests: expected no --input, found " +
        options.input);
  check_report_file(options.json_file, input_files(options));
  std::vector<std::string> other_files = input_files(options);
  other_files.push_back(options.json_file);
  check_report_file(options.trace, other_files, "--trace");
  const StepBenchPlan plan = step_plan(options);
  std::map<std::string, Acceptance> acceptance;
  if (!options.assumed_acceptance.empty())
    acceptance = read_acceptance(data::read_json(options.assumed_acceptance), plan.rows);
  for (const std::string& kind : options.random_heads) model::drafter_kind(kind);  // InputError if unknown
  if (!options.random_weights.empty()) {
    if (!options.heads.empty())
      throw data::InputError(
          "--heads " + options.heads.front() +
          ": trained heads need their --target; with --random-weights give --random-heads");
    const at::Device device = open_device(options.model);
    const auto target = random_target(options.random_weights, options.model.dtype, device);
    if (options.model.max_context > 0) target->set_context(options.model.max_context);
    report_steps(options, *target, run_step_bench(*target, random_drafters(options, *target), plan),
                 acceptance);
  } else {
    const LoadedModel model = load_model(options.model);
    std::vector<NamedDrafter> drafters = load_drafters(options, model);
    for (NamedDrafter& random : random_drafters(options, *model.target))
      drafters.push_back(std::move(random));
    report_steps(options, *model.target, run_step_bench(*model.target, drafters, plan), acceptance);
  }
  return exit_done;
}

BenchPlan request_plan(const BenchOptions& options) {
  BenchPlan plan;
  DecodeFlags decode = options.decode;
  // Sizes and heads are checked with plan.policies by plan_configurations, not here with decode.draft, which
  // bench does not set.
  plan.tree_sizes = std::exchange(decode.tree_sizes, {});
  plan.base = to_engine_options(decode, /*has_heads=*/false);
  plan.budgets = options.budgets;
  plan.batch_sizes = options.batch_sizes.empty() ? std::vector<int64_t>{1, 4, 8, 16} : options.batch_sizes;
  plan.policies = options.policies;
  plan.suffix = options.decode.suffix;
  if (plan.policies.empty()) {
    plan.policies = options.heads.empty() ? std::vector<std::string>{"off", "auto"}
                                          : std::vector<std::string>{"off", "auto", "clover"};
  }
  return plan;
}

/// The seconds and operations that making the heads cost, by folder, where the folder records them.
std::map<std::string, TrainingCost> training_costs(const std::vector<std::string>& folders) {
  std::map<std::string, TrainingCost> costs;
  for (const std::string& folder : folders)
    if (const auto cost = training_cost(model::read_heads_info(folder).config)) costs[folder] = *cost;
  return costs;
}

/// Measures requests.
int bench_requests(const BenchOptions& options) {
  if (options.input.empty())
    throw data::InputError("expected --input FILE.jsonl (or --rows N,...), found neither");
  if (!options.assumed_acceptance.empty() || !options.random_heads.empty() || !options.trace.empty())
    throw data::InputError(
        "--assume-acceptance, --random-heads and --trace belong to --random-weights or --rows, found "
        "--input");
  BenchPlan plan = request_plan(options);
  // A first plan, with names of drafters only, so that a wrong name or file is refused before the model is
  // read.
  check_report_file(options.json_file, input_files(options));
  std::vector<NamedDrafter> unloaded_drafters;
  for (const std::string& folder : options.heads) unloaded_drafters.push_back({folder, nullptr});
  plan_configurations(plan, unloaded_drafters);
  const std::vector<BatchLine> lines = read_batch_file(options.input, options.decode.sampling);
  const LoadedModel model = load_model(options.model);
  plan.base.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  const std::vector<NamedDrafter> drafters = load_drafters(options, model);
  const auto costs =
      training_costs(options.heads);  // of these heads, not of others that a fit writes meanwhile
  // Where `auto` reads and saves what passes take on this machine.
  plan.base.costs = CostFile::for_target(*model.target, plan.base.graphs, plan.base.typical);
  json entries = run_bench(model, plan_configurations(plan, drafters), lines, options.rounds,
                           [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  add_break_even(entries, costs);
  const json report = make_report(entries, *model.target);
  write_report(options.json_file, report);
  std::fputs(bench_table(entries, report["read_bandwidth"].get<double>()).c_str(), stderr);
  std::fputs(break_even_table(entries).c_str(), stderr);
  return exit_done;
}

void add_step_options(CLI::App& app, BenchOptions& options) {
  const std::string steps = "Cost of a step (instead of --input)";
  add_numbers_option(app, "--rows", options.rows,
                     "Rows of each sequence in one step of the target (default: 1,5)", 1, 4096)
      ->group(steps);
  app.add_option("--context", options.context, "Tokens that each sequence has cached before the step")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->group(steps);
  app.add_option("--random-weights", options.random_weights,
                 "Instead of --target: a config.json, whose shape is measured with random weights")
      ->type_name("FILE")
      ->group(steps);
  app.add_option("--random-heads", options.random_heads,
                 "Kinds of heads to time beside the target, untrained")
      ->delimiter(',')
      ->type_name("KIND,...")
      ->group(steps);
  add_numbers_option(app, "--draft-vocab", options.draft_vocabs,
                     "Vocabularies of the random heads; 0: the target's", 0, int64_t{1} << 24)
      ->group(steps);
  app.add_option(
         "--assume-acceptance", options.assumed_acceptance,
         "The --json of a bench with trained heads: from its tokens per step and the times measured here "
         "tokens/s are projected")
      ->type_name("FILE")
      ->group(steps);
  app.add_option(
         "--trace", options.trace,
         "Write a timeline of eight steps at the first batch size: kernels on a GPU, LibTorch's operators "
         "on a CPU, for Perfetto or chrome://tracing")
      ->type_name("FILE")
      ->group(steps);
}

/// What --help prints after the options.
constexpr const char* bench_help_footer = R"(
The table goes to stderr, all figures to --json.  tokens/s counts decoding, not prefill.

Examples:
  clover-infer bench --target models/SmolLM2-135M-Instruct --heads heads-clover heads-medusa \
      --input questions.jsonl --draft off,auto,clover --budgets 2,4,8 --batch-sizes 1,8 --json speed.json
  clover-infer bench --target models/SmolLM2-135M-Instruct --rows 1,5,16 --context 512 --json rows.json
  clover-infer bench --random-weights configs/targets/vicuna-7b.json --device cuda --batch-sizes 1,4,16,48 \
      --random-heads clover,medusa --draft-vocab 0,8192 --assume-acceptance speed.json
)";

}  // namespace

Action declare_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  options->decode.sampling.max_tokens = 128;
  add_model_options(app, options->model,
                    HeadsOption::none);  // --heads is declared below, since bench takes several
  add_context_option(app, options->model);
  app.get_option("--target")->required(false);
  app.add_option("--heads", options->heads, "Folders of drafter heads to compare")
      ->type_name("DIR")
      ->group("Model");
  app.add_option("--json", options->json_file, "Write all figures here")->type_name("FILE");
  app.add_option(
         "--rounds", options->rounds,
         "How often every setting is measured; every second round runs them in reverse, so an even number "
         "favours none")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  const std::string what = "What to measure";
  app.add_option("--input", options->input, "Requests as for batch")->type_name("FILE")->group(what);
  add_numbers_option(app, "--batch-sizes", options->batch_sizes,
                     "Sequences decoded at once (default: 1,4,8,16; 1 for steps without requests)", 1, 65536)
      ->group(what);
  app.add_option("--draft", options->policies,
                 "Growth policies (default: off,auto and with heads clover); off is always measured")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(what);
  add_numbers_option(app, "--budgets", options->budgets,
                     "Guesses checked per sequence and step, for " + policies_with_budgets(), 1, 4096)
      ->group(what);
  add_tree_options(app, options->decode, what);
  add_graphs_option(app, options->decode);
  add_suffix_options(app, options->decode);
  app.add_option("--kv-memory", options->decode.kv_memory,
                 "Memory for keys and values; 0: what the input needs")
      ->type_name("BYTES")
      ->transform(byte_count())
      ->group(what);
  add_prefill_option(app, options->decode, what);
  add_sampling_options(app, options->decode.sampling);
  add_end_option(app, options->decode);
  add_step_options(app, *options);
  app.footer(bench_help_footer);
  return [options] {
    watch_for_interrupts();
    if (options->model.target.empty() == options->random_weights.empty())
      throw data::InputError("expected either --target DIR or --random-weights FILE");
    return options->rows.empty() && options->random_weights.empty() ? bench_requests(*options)
                                                                    : bench_steps(*options);
  };
}

}  // namespace clover::infer
