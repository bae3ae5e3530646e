// `clover-infer inspect`: shows and checks a folder.  It goes on in infer/commands/inspect.h.

#include <cstdio>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/commands/commands.h"
#include "infer/commands/inspect.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/report.h"

namespace clover::infer {
namespace {

using nlohmann::json;

// Less than 1, because near ties between tokens may go the other way in bf16 on another CPU.
constexpr double min_golden_agreement = 0.9;

struct InspectOptions {
  ModelOptions model;  // model.target: of --target, the model that the heads to verify were trained on
  std::string folder;  // to inspect, of a model or of heads
  std::string report, prompts;  // files of --json and --prompts
  bool verify = false;
};

/// Prints the description of the folder, and writes it to --json.
void print_and_write(const InspectOptions& options, const json& description) {
  std::fputs(to_lines(description).c_str(), stdout);
  if (options.report.empty()) return;
  data::write_file_atomically(options.report,
                              description.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

/// Inspects a model's folder; returns the exit code.
int run_on_model(const InspectOptions& options) {
  ModelOptions model = options.model;
  model.target = options.folder;
  const json description = inspect_model(model, options.verify);
  print_and_write(options, description);
  if (!options.verify) return exit_done;
  if (description["not_finite"].empty()) {
    std::puts("verified: every tensor is finite");
    return exit_done;
  }
  std::fprintf(stderr, "%s: %zu tensors hold values that are not finite, the first is %s\n",
               options.folder.c_str(), description["not_finite"].size(),
               description["not_finite"][0].get<std::string>().c_str());
  return exit_failed;
}

/// Inspects a folder of heads; returns the exit code.
int run_on_heads(const InspectOptions& options) {
  if (options.verify && options.model.target.empty()) {
    throw data::InputError(
        "--verify: expected --target DIR, the model these heads were trained on, found none");
  }
  json description = inspect_heads(options.folder);
  if (options.verify) description.update(verify_heads(options.folder, options.model, options.prompts));
  print_and_write(options, description);
  if (!options.verify) return exit_done;
  const double agreement = description["golden_agreement"].get<double>();
  const bool good = agreement >= min_golden_agreement;
  std::fprintf(good ? stdout : stderr, "%s: %.1f%% of the recorded guesses are the same (%.0f%% wanted)\n",
               good ? "verified" : options.folder.c_str(), 100 * agreement, 100 * min_golden_agreement);
  if (options.prompts.empty()) return good ? exit_done : exit_failed;
  const json& own = description["own_prompts"];
  const auto mismatches = own["differs_from_plain"].get<int64_t>();
  std::fprintf(mismatches == 0 ? stdout : stderr,
               "%lld prompts of %s: %.2f tokens a step, %lld answers differ from plain decoding (0 wanted)\n",
               static_cast<long long>(own["requests"].get<int64_t>()), options.prompts.c_str(),
               own["tokens_per_step"].get<double>(), static_cast<long long>(mismatches));
  return good && mismatches == 0 ? exit_done : exit_failed;
}

/// What --help prints after the options.
constexpr const char* inspect_help_footer = R"(
Exit code 0: sound; 1: --verify found it is not; 2: cannot be read.

Examples:
  clover-infer inspect models/SmolLM2-135M-Instruct --verify
  clover-infer inspect heads-clover --verify --target models/SmolLM2-135M-Instruct
  clover-infer inspect heads-clover --verify --target models/SmolLM2-135M-Instruct --prompts questions.jsonl
)";

}  // namespace

Action declare_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  app.add_option("--folder,folder", options->folder,
                 "Model or heads folder; its option's name may be left out")
      ->required()
      ->type_name("DIR");
  app.add_flag("--verify", options->verify,
               "Heads: guess again on the recorded prompt; model: check that all values are finite");
  add_model_options(app, options->model, HeadsOption::none);
  app.get_option("--target")
      ->required(false)
      ->description("Heads: the model they were trained on, for --verify");
  app.add_option(
         "--prompts", options->prompts,
         "Heads: requests as for batch; the first ten are decoded with the heads and without for --verify")
      ->type_name("FILE");
  app.add_option("--json", options->report, "Also write everything here")->type_name("FILE");
  app.footer(inspect_help_footer);
  return [options] {
    check_report_file(options->report, {options->folder, options->model.target, options->prompts});
    if (!options->prompts.empty() && !options->verify)
      throw data::InputError("--prompts: expected --verify beside it, found none");
    watch_for_interrupts();
    return kind_of_folder(options->folder) == FolderKind::model ? run_on_model(*options)
                                                                : run_on_heads(*options);
  };
}

}  // namespace clover::infer
