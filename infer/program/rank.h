#pragma once

#include <cstdint>

namespace clover::infer {

/// Which of the processes that a launcher started this one is.
struct Rank {
  int64_t number = 0;
  int64_t count = 1;

  /// From RANK and WORLD_SIZE (torchrun) or SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun); alone without them.
  /// InputError when they are no rank.
  static Rank of_launcher();
};

/// Processes that torchrun started on this machine, which share its cores and memory; Slurm deals them out
/// itself.
int64_t local_ranks();

}  // namespace clover::infer
