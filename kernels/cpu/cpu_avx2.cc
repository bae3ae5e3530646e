// Compiled with -mavx2 -mfma -mf16c.
#include "kernels/cpu/table.h"

namespace clover::kernels::cpu {

const CpuBodies& avx2_bodies() {
  return table;
}

}  // namespace clover::kernels::cpu
