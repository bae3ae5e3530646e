#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "data/files/error.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "train/commands/commands.h"
#include "train/commands/drafter_arguments.h"
#include "train/ranks/communicator.h"
#include "train/run/estimate.h"
#include "train/run/fit.h"
#include "train/run/fit_job.h"
#include "train/run/settings.h"
#include "train/run/trainer.h"

namespace clover::train {
namespace {

/// Prints the settings and the estimate of --dry-run: a valid file for --config, as the estimate is in
/// comments.  The target is left out if its weights are random.
int dry_run(const FitJob& job, TargetWeights weights) {
  FitSettings settings = job.settings;
  if (weights == TargetWeights::random) settings.target = "";
  std::cout << settings.to_toml() << "\n# estimate\n";
  std::istringstream lines(estimate(job).dump(2));
  for (std::string line; std::getline(lines, line);) std::cout << "# " << line << "\n";
  return infer::exit_done;
}

}  // namespace

Action declare_fit(CLI::App& app) {
  struct Options {
    FitSettings settings;
    FitFolders folders;
    std::string output;  // becomes folders.output
    bool dry_run = false;
    std::string random_weights;  // a config.json
  };
  const auto options = std::make_shared<Options>();
  FitSettings::for_each(options->settings, [&](const char* name, auto& value, const std::string& help) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, nlohmann::json>) {
      const auto& kind_options = model::drafter_options();
      declare_drafter_option(app, *std::ranges::find(kind_options, name, &model::DrafterOption::name), value)
          ->group("Settings");
    } else {
      CLI::Option* option = app.add_option(std::string("--") + name, value, help)->group("Settings");
      if constexpr (std::is_integral_v<Value>) option->check(infer::whole_number<Value>());
    }
  });
  app.add_option("--output", options->output, "Folder of this run")->type_name("DIR");
  app.add_option("--resume", options->folders.resume,
                 "auto: continue from the newest checkpoint of --output, or begin when there is none; or a "
                 "checkpoint folder")
      ->type_name("auto|DIR");
  app.add_flag("--dry-run", options->dry_run, "Check everything, estimate memory and time, write nothing");
  app.add_option(
         "--random-weights", options->random_weights,
         "With --dry-run, in place of --target: the config.json of a model, whose weights are drawn at "
         "random. Estimates what heads for it would take on this machine")
      ->type_name("FILE");
  app.footer(
      "Example:\n"
      "  clover-train fit --config configs/clover.toml --target models/SmolLM2-135M-Instruct --data store "
      "--output run\n"
      "  clover-train fit ... --output run --resume auto      the same command continues after any "
      "interruption\n"
      "  clover-train fit --dry-run --random-weights configs/targets/llama-3.1-8b.json --device cuda "
      "--data store --output run\n"
      "  torchrun --no-python --nproc-per-node 4 clover-train fit ... --micro-batch 4 --device cuda\n"
      "      on four GPUs, over NCCL, a quarter of each step's 16 answers on each; srun does as well");
  return [options]() -> int {
    options->folders.output = options->output;
    const bool random = !options->random_weights.empty();
    if (random && (!options->dry_run || !options->settings.target.empty()))
      throw data::InputError(
          "--random-weights " + options->random_weights +
          " is for estimates: give it with --dry-run and without --target, which --config may hold too");
    if (random) options->settings.target = options->random_weights;
    const TargetWeights weights = random ? TargetWeights::random : TargetWeights::stored;
    const auto prepare = [&] { return prepare_job(options->settings, options->folders, weights); };
    if (options->dry_run) {
      const infer::Rank rank = infer::Rank::from_environment();
      if (rank.number != 0) return infer::exit_done;
      FitJob job = prepare();
      check_ranks(job.settings, rank);
      return dry_run(job, weights);
    }
    const std::unique_ptr<Communicator> ranks = Communicator::from_environment();
    std::optional<FitJob> job;
    ranks->run_on_all_ranks([&] { job.emplace(prepare()); });
    return fit(*job, *ranks);
  };
}

}  // namespace clover::train
