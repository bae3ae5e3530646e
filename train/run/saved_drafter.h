#pragma once

#include <filesystem>
#include <memory>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/run/checkpoint.h"
#include "train/run/settings.h"

namespace clover::train {

/// The trainable tensors of a drafter under their names: what an optimiser holds and a checkpoint saves.
data::NamedTensors parameters_of(const model::Drafter& drafter);

/// The settings of the run a checkpoint belongs to; those it does not name are as by default.  InputError
/// when they make no heads or one is of the wrong type.
FitSettings settings_of_run(const SavedRun& saved, const std::filesystem::path& checkpoint);

/// The trainable drafter a checkpoint was saved from, with fresh weights.  InputError when its token map or
/// its weights and moments, which `restore_optimiser` then reads, are not those of such a drafter or no
/// finite numbers.
std::shared_ptr<model::Drafter> make_saved_drafter(const SavedRun& saved,
                                                   const std::filesystem::path& checkpoint,
                                                   const FitSettings& settings, const model::Target& target);

}  // namespace clover::train
