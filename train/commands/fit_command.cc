#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "train/commands/commands.h"
#include "train/commands/drafter_arguments.h"
#include "train/ranks/communicator.h"
#include "train/run/fit.h"
#include "train/run/fit_job.h"
#include "train/run/settings.h"
#include "train/run/trainer.h"

namespace clover::train {

Action declare_fit(CLI::App& app) {
  struct Options {
    FitSettings settings;
    FitFolders folders;
    std::string output;  // becomes folders.output
    bool dry_run = false;
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
  app.footer(
      "Example:\n"
      "  clover-train fit --config configs/clover.toml --target models/SmolLM2-135M-Instruct --data store "
      "--output run\n"
      "  clover-train fit ... --output run --resume auto      the same command continues after any "
      "interruption\n"
      "  torchrun --no-python --nproc-per-node 4 clover-train fit ... --micro-batch 4 --device cuda\n"
      "      on four GPUs, over NCCL, a quarter of each step's 16 answers on each; srun does as well");
  return [options]() -> int {
    options->folders.output = options->output;
    const auto prepare = [options] { return prepare_job(options->settings, options->folders); };
    if (options->dry_run) {
      const infer::Rank rank = infer::Rank::from_environment();
      if (rank.number != 0) return infer::exit_done;
      FitJob job = prepare();
      check_ranks(job.settings, rank);
      return dry_run(job);
    }
    const std::unique_ptr<Communicator> ranks = Communicator::from_environment();
    std::optional<FitJob> job;
    ranks->run_on_all_ranks([&] { job.emplace(prepare()); });
    return fit(*job, *ranks);
  };
}

}  // namespace clover::train
