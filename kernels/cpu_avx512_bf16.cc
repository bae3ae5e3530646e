// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 and the flags of cpu_avx2.cc.
#include "kernels/body/table.h"

namespace clover::kernels::cpu {

const CpuBodies& avx512_bf16_bodies() {
  return table;
}

}  // namespace clover::kernels::cpu
