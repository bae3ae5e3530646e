#include <CLI/CLI.hpp>
#include <memory>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/run_after_input_checks.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/report.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/commands/commands.h"
#include "train/evaluate/eval_input.h"
#include "train/evaluate/eval_report.h"
#include "train/evaluate/evaluation.h"
#include "train/objective/objective.h"

namespace clover::train {
namespace {

struct EvalOptions {
  infer::ModelOptions model;
  EvalSource source;
  EvalSettings settings;
  std::string json;  // file for the report; "": none
};

/// The --loss that the heads were trained with, if it has several terms; else "".
std::string loss_of_several_terms(const std::string& heads) {
  const nlohmann::json config = model::read_heads_info(heads).config;
  const nlohmann::json::json_pointer loss_path("/training/settings/loss");
  if (!config.contains(loss_path) || !config.at(loss_path).is_string()) return "";
  const std::string loss = config.at(loss_path);
  return LossTerms::parse(loss).count() > 1 ? loss : "";
}

int eval(const EvalOptions& options) {
  if (options.model.heads.empty()) throw data::InputError("No heads: give --heads DIR.");
  infer::check_report_file(options.json, {options.source.input, options.model.target, options.model.heads,
                                          options.settings.answers.feature_file});
  infer::watch_for_interrupts();
  const at::Device device = infer::open_device(options.model);
  const infer::PromptEncoder encoder(options.model.target, options.model.chat_template);
  infer::check_tokenizer(options.model.heads, encoder.tokenizer());
  const auto target = infer::load_target(options.model, device);
  infer::print_end_token_warnings(options.model.target, target->config(), encoder.tokenizer());
  const auto drafter = model::load_heads(options.model.heads, *target, /*trainable=*/true);
  EvalSource source = options.source;
  source.target_folder = options.model.target;
  source.chat_template = options.model.chat_template;
  EvalInput input = read_eval_input(source, encoder, *target);
  const int64_t samples = static_cast<int64_t>(input.samples.size()), bad = input.bad_records;
  const std::string split = input.split;
  EvalSettings settings = options.settings;
  if (settings.loss.empty()) settings.loss = loss_of_several_terms(options.model.heads);
  check_terms(LossTerms::parse(settings.loss.empty() ? "cross-entropy" : settings.loss), *drafter,
              target->config().hidden);
  settings.answers.target_folder = options.model.target;
  settings.answers.shows_progress = true;
  settings.answers.cache_bytes = infer::default_cache_bytes(at::kCPU);
  const EvalMetrics metrics =
      evaluate(settings, *target, encoder.tokenizer(), *drafter, std::move(input.samples));
  nlohmann::json report = eval_report(metrics, settings, samples);
  report["split"] = split.empty() ? nlohmann::json() : nlohmann::json(split);
  report["bad_records"] = bad;
  report["heads_folder"] = options.model.heads;
  show_eval_report(report);
  if (!options.json.empty())
    infer::run_after_input_checks([&] { data::write_file_atomically(options.json, report.dump(1) + "\n"); });
  return bad > 0 ? infer::exit_some_failed : infer::exit_done;
}

}  // namespace

Action declare_eval(CLI::App& app) {
  const auto options = std::make_shared<EvalOptions>();
  AnswerSettings& answers = options->settings.answers;
  infer::add_model_options(app, options->model, infer::HeadsOption::one);
  infer::add_context_option(app, options->model);
  app.add_option("--input", options->source.input, "Token store, or JSONL of training records or requests")
      ->required()
      ->type_name("FILE|STORE");
  app.add_option("--json", options->json, "Write the figures to this file")->type_name("FILE");
  app.add_option("--max-tokens", answers.max_tokens, "Tokens decoded for each prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--budget", options->settings.budget, "Guesses a step of the decoder (policy clover)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--max-batch", answers.max_batch, "Sequences decoded together")->check(CLI::Range(1, 4096));
  app.add_option("--limit", options->source.limit, "Samples used at most")->check(CLI::Range(1, 1 << 30));
  app.add_option("--max-length", options->source.max_length, "Longer samples are cut to this many tokens")
      ->check(CLI::Range(3, 1 << 30));
  app.add_option(
         "--loss", options->settings.loss,
         "Also report the terms of this loss, as for fit; default: that of the heads' training, if it "
         "has several")
      ->type_name("TERMS");
  app.add_option(
         "--feature-file", answers.feature_file,
         "Features of the target: read from this file if it exists, else written to it. Evaluations of other "
         "heads on the same input then take a fraction of the time")
      ->type_name("FILE");
  app.footer(
      "Example:\n  clover-train eval --target models/SmolLM2-135M-Instruct --heads run/best --input store "
      "--json eval.json");
  return [options] { return eval(*options); };
}

}  // namespace clover::train
