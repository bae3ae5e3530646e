#pragma once

#include <filesystem>
#include <memory>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/run/checkpoint.h"
#include "train/run/settings.h"

namespace clover::train {

/// The trainable tensors of a drafter by name, for the optimiser and checkpoints.
data::NamedTensors parameters_of(const model::Drafter& drafter);

/// The settings of the run that a checkpoint belongs to; settings that it does not record have their
/// defaults. `checkpoint`: its folder, for messages.  InputError when a setting has the wrong type, or no
/// drafter can be made from them.
FitSettings settings_of_run(const SavedRun& saved, const std::filesystem::path& checkpoint);

/// A trainable drafter of the checkpoint's kind and settings with initial weights.
/// `restore_weights_and_moments` (checkpoint.h) then loads the saved weights together with the moments.
/// InputError when the checkpoint's token map, weights or moments do not fit the drafter or are not finite.
std::shared_ptr<model::Drafter> make_saved_drafter(const SavedRun& saved,
                                                   const std::filesystem::path& checkpoint,
                                                   const FitSettings& settings, const model::Target& target);

}  // namespace clover::train
