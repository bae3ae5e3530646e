#pragma once

#include <cstdint>

#include "model/drafters/drafter.h"
#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// InputError, in all ranks, unless all have prepared the same job: they would add up different things, and
/// never know.
void check_same_job(const FitJob& job, Communicator& ranks);

/// std::runtime_error unless all ranks hold the same weights after `step`: machines that do not compute alike
/// must not go unnoticed.
void check_same_weights(const model::Drafter& drafter, int64_t step, Communicator& ranks);

}  // namespace clover::train
