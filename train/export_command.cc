#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "data/error.h"
#include "data/safetensors.h"
#include "infer/exit_code.h"
#include "model/heads_checkpoint.h"
#include "train/checkpoint.h"
#include "train/commands.h"
#include "train/export_formats.h"
#include "train/heads_about.h"
#include "train/settings.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string heads, run, target, format = "clover", output, dtype;
  int64_t step = -1;
};

fs::path chosen_checkpoint(const ExportOptions& options) {
  const Checkpoints checkpoints(options.run);
  if (options.step >= 0) return checkpoints.at_step(options.step);
  const auto newest = checkpoints.newest();
  if (!newest) {
    throw data::InputError(options.run + " holds no checkpoint: give the folder of a run, or --heads DIR.");
  }
  return *newest;
}

FitSettings settings_of(const SavedRun& saved, const fs::path& checkpoint) {
  FitSettings settings;
  try {
    const nlohmann::json& recorded = saved.identity.at("settings");
    FitSettings::each(settings,
                      [&](const char* name, auto& value, const char*) { recorded.at(name).get_to(value); });
  } catch (const nlohmann::json::exception& error) {
    throw data::InputError(checkpoint.string() + " does not hold the settings of a run (" + error.what() +
                           ").");
  }
  return settings;
}

/// A checkpoint's weights as a heads folder.
void write_checkpoint_heads(const ExportOptions& options, const fs::path& folder) {
  const fs::path checkpoint = chosen_checkpoint(options);
  const SavedRun saved = read_checkpoint(checkpoint);
  const FitSettings settings = settings_of(saved, checkpoint);
  const std::string target_folder = options.target.empty() ? settings.target : options.target;
  const auto target = model::Target::load(target_folder, model::parse_dtype(settings.dtype));
  if (saved.identity.value("target", "") != target->fingerprint()) {
    throw data::InputError(target_folder + " is not the target of this run (" + target->fingerprint() +
                           ", not " + saved.identity.value("target", "") + "): give it with --target.");
  }
  const auto drafter = model::make_drafter(settings.kind, settings.drafter(), target->view(), saved.token_map,
                                           /*trainable=*/true, settings.seed);
  data::NamedTensors parameters;
  for (const auto& item : drafter->named_parameters()) parameters.emplace_back(item.key(), item.value());
  AdamW optimiser(parameters, {});
  restore_optimiser(checkpoint, saved.state.step, optimiser);

  nlohmann::json about = saved.identity.value("origin", nlohmann::json::object());
  about["training"] = {{"steps", saved.state.step},
                       {"answer_tokens", saved.state.tokens},
                       {"device_seconds", saved.state.seconds},
                       {"settings", settings.to_json()}};
  const auto golden = saved.identity.value("golden_ids", std::vector<int64_t>());
  write_heads(folder, *drafter, *target, about, golden, c10::ScalarType::Float);
}

c10::ScalarType stored_dtype(const ExportOptions& options, const fs::path& heads) {
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
    model::read_heads_info(options.heads);
    export_heads(options.heads, options.format, options.output, stored_dtype(options, options.heads));
    return infer::exit_done;
  }
  const fs::path parent = fs::absolute(options.output).parent_path();
  const fs::path between = parent / (".export." + std::to_string(::getpid()));
  try {
    if (fs::exists(options.output))
      throw data::InputError(options.output + " already exists: give another --output.");
    write_checkpoint_heads(options, between);
    export_heads(between, options.format, options.output, stored_dtype(options, between));
  } catch (...) {
    fs::remove_all(between);
    throw;
  }
  fs::remove_all(between);
  return infer::exit_done;
}

}  // namespace

Action declare_export(CLI::App& app) {
  const auto options = std::make_shared<ExportOptions>();
  app.add_option("--heads", options->heads, "Heads folder to export")->type_name("DIR");
  app.add_option("--run", options->run, "Run folder whose checkpoint is to be exported")->type_name("DIR");
  app.add_option("--step", options->step, "Checkpoint of the run; -1: the newest")->type_name("N");
  app.add_option("--target", options->target, "Target of the run (default: where it was in training)")
      ->type_name("DIR");
  app.add_option("--format", options->format, list_export_formats());
  app.add_option("--dtype", options->dtype, "bfloat16, float16 or float32 (default: as stored)");
  app.add_option("--output", options->output, "Folder to write")->required()->type_name("DIR");
  app.footer(
      "Example:\n  clover-train export --run run --step 400 --format clover --dtype bfloat16 --output "
      "heads-400");
  return [options] { return run_export(*options); };
}

}  // namespace clover::train
