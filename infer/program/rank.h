#pragma once

#include <cstdint>

namespace clover::infer {

/// The rank of this process among the processes that a launcher (torchrun, srun) started.
struct Rank {
  int64_t number = 0;  // 0 .. count - 1
  int64_t count = 1;   // the world size

  /// Read from RANK and WORLD_SIZE (torchrun), or from SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun); without
  /// them it is rank 0 of 1.  InputError when they are not numbers or the rank is not below the count.
  static Rank from_environment();
};

/// The number of processes that torchrun started on this machine, which share its cores and memory; 1 without
/// torchrun, also under srun, because Slurm itself divides cores and memory among its tasks.
int64_t local_ranks();

}  // namespace clover::infer
