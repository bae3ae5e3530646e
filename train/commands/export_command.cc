#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/error.h"
#include "data/files/safetensors.h"
#include "data/files/unfinished_folder.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/commands/commands.h"
#include "train/heads/export_formats.h"
#include "train/heads/heads_folder.h"
#include "train/run/checkpoint.h"
#include "train/run/saved_drafter.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string heads, run;  // folders, one of which is given
  int64_t step = -1;       // of the checkpoint of `run`; -1: the newest
  std::string target, format = "clover", output, dtype;
};

/// The checkpoint that --run and --step name.
fs::path chosen_checkpoint(const ExportOptions& options) {
  if (options.step < -1) {
    throw data::InputError("--step is " + std::to_string(options.step) +
                           ", expected the number of a checkpoint, or -1 for the newest.");
  }
  const Checkpoints checkpoints(options.run);
  const std::vector<int64_t> steps = checkpoints.steps();
  if (steps.empty())
    throw data::InputError(options.run + " holds no checkpoint: give the folder of a run, or --heads DIR.");
  if (options.step < 0) return checkpoints.at_step(steps.back());
  if (std::find(steps.begin(), steps.end(), options.step) == steps.end()) {
    std::string list;
    for (const int64_t step : steps) list += (list.empty() ? "" : ", ") + std::to_string(step);
    throw data::InputError("--step " + std::to_string(options.step) + ": " + options.run +
                           " holds no checkpoint of that step, expected one of: " + list);
  }
  return checkpoints.at_step(options.step);
}

/// The golden prompt that the checkpoint records; InputError for ids outside the target's vocabulary.
std::vector<int64_t> golden_ids_of(const SavedRun& saved, const fs::path& checkpoint, int64_t vocab) {
  const nlohmann::json ids = saved.identity.value("golden_ids", nlohmann::json::array());
  std::vector<int64_t> golden_ids;
  for (const auto& id : ids.is_array() ? ids : nlohmann::json::array({nullptr})) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      throw data::InputError((checkpoint / "state.json").string() +
                             ": \"golden_ids\" must be a list of the target's token ids, found " +
                             id.dump().substr(0, 80) + ": use another checkpoint.");
    }
    golden_ids.push_back(id.get<int64_t>());
  }
  return golden_ids;
}

/// Writes a checkpoint's weights as a heads folder.
void write_checkpoint_heads(const ExportOptions& options, const fs::path& folder) {
  const fs::path checkpoint = chosen_checkpoint(options);
  const SavedRun saved = read_checkpoint(checkpoint);
  const FitSettings settings = settings_of_run(saved, checkpoint);
  const std::string target_folder = options.target.empty() ? settings.target : options.target;
  const auto target = model::Target::load(target_folder, model::parse_dtype(settings.dtype));
  const auto fingerprint = saved.identity.at("target").get<std::string>();
  if (const std::string difference = target->difference_from(fingerprint); !difference.empty()) {
    throw data::InputError(target_folder + " is not the target of this run (" + target->fingerprint() +
                           ", not " + fingerprint + ", " + difference + "): give it with --target.");
  }
  const auto drafter = make_saved_drafter(saved, checkpoint, settings, *target);
  AdamW optimiser(parameters_of(*drafter), {});
  restore_weights_and_moments(checkpoint, saved.state.step, optimiser);
  write_heads(folder, *drafter, *target, saved.heads_metadata,
              golden_ids_of(saved, checkpoint, target->config().vocab), c10::ScalarType::Float);
}

/// --dtype, or else the dtype of the stored weights.
c10::ScalarType chosen_dtype(const ExportOptions& options, const fs::path& heads) {
  if (!options.dtype.empty()) return model::parse_dtype(options.dtype);
  const auto reader = data::SafetensorsReader::open(heads / "model.safetensors");
  for (const auto& name : reader.names()) {
    if (c10::isFloatingType(reader.info(name).dtype)) return reader.info(name).dtype;
  }
  return c10::ScalarType::Float;
}

int run_export(const ExportOptions& options) {
  if (options.heads.empty() == options.run.empty()) {
    throw data::InputError("Give either --heads DIR or --run DIR: what is to be exported.");
  }
  if (!options.heads.empty()) {
    if (options.step >= 0)
      throw data::InputError("--step chooses a checkpoint of --run DIR: leave it out with --heads DIR.");
    model::read_heads_info(options.heads);
    export_heads(options.heads, options.format, options.output, chosen_dtype(options, options.heads),
                 options.target);
    return infer::exit_done;
  }
  check_export(options.format, options.output);
  // The checkpoint becomes a heads folder first, in a temporary folder beside the output.  `finish` is never
  // called on it, so it is removed at the end.
  const fs::path temporary_name = data::resolved_folder_name(options.output).parent_path() / "export";
  data::remove_unfinished(temporary_name);
  const data::UnfinishedFolder temporary(temporary_name);
  const fs::path heads = temporary.path() / "heads";
  write_checkpoint_heads(options, heads);
  export_heads(heads, options.format, options.output, chosen_dtype(options, heads), options.target);
  return infer::exit_done;
}

}  // namespace

Action declare_export(CLI::App& app) {
  const auto options = std::make_shared<ExportOptions>();
  app.add_option("--heads", options->heads, "Heads folder to export")->type_name("DIR");
  app.add_option("--run", options->run, "Run folder whose checkpoint is to be exported")->type_name("DIR");
  app.add_option("--step", options->step, "Checkpoint of the run; -1: the newest")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.add_option("--target", options->target,
                 "The heads' target, for --run and for formats that hold its LM head (default: where it was "
                 "in training)")
      ->type_name("DIR");
  app.add_option("--format", options->format, list_export_formats());
  app.add_option("--dtype", options->dtype, "bfloat16, float16 or float32 (default: as stored)");
  app.add_option("--output", options->output, "Folder to write")->required()->type_name("DIR");
  app.footer(
      "Example:\n  clover-train export --run run --step 400 --format clover --dtype bfloat16 --output "
      "heads-400\n  clover-train export --heads heads-medusa --format medusa-vllm --target vicuna-7b "
      "--output heads-vllm");
  return [options] { return run_export(*options); };
}

}  // namespace clover::train
