#pragma once

#include <cstdint>

#include "model/drafters/drafter.h"
#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// InputError in all ranks unless all have the same job (settings, target, data, weights).  Ranks with
/// different jobs would add up gradients that do not belong together, without any other error.
void check_ranks_agree_on_job(const FitJob& job, Communicator& ranks);

/// std::runtime_error in all ranks unless all have the same weights after step `step`.  They differ if the
/// ranks' machines round differently.
void check_ranks_agree_on_weights(const model::Drafter& drafter, int64_t step, Communicator& ranks);

}  // namespace clover::train
