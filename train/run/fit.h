#pragma once

#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// Trains the job's drafter into its run folder: run.toml, log.jsonl, TensorBoard events, checkpoints/, best/
/// and last/.  Returns an exit code: done, or interrupted with a checkpoint that `--resume auto` continues
/// from.  All of `ranks` call it, with the same job; rank 0 evaluates and writes.
int fit(FitJob& job, Communicator& ranks);

/// Prints what the run would take; writes nothing.
int dry_run(FitJob& job);

}  // namespace clover::train
