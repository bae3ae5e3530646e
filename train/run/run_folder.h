#pragma once

#include "train/run/fit_job.h"

namespace clover::train {

/// Prepares the run folder, which is locked: writes run.toml, and removes temporary files of killed processes
/// and checkpoints after the one that is resumed.
void prepare_run_folder(const FitJob& job);

}  // namespace clover::train
