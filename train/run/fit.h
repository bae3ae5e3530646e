#pragma once

#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// Trains the job's drafter and writes the run folder: run.toml, log.jsonl, TensorBoard events, checkpoints/,
/// best/ and last/ (heads folders).  Returns infer::exit_done, or infer::exit_interrupted with a checkpoint
/// from which `--resume auto` continues.  All `ranks` call it with the same job; rank 0 evaluates and writes.
/// The parts of a run:
///   fit_job.h     reads and checks everything before training begins
///   trainer.h     the optimiser steps
///   checkpoint.h  saves and restores the state
///   run_report.h  log.jsonl, TensorBoard and the terminal
///   train/evaluate/acceptance.h  tokens per step of the real decoder; the heads with the most go to best/
int fit(FitJob& job, Communicator& ranks);

}  // namespace clover::train
