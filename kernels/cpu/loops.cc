#include "kernels/cpu/loops.h"

namespace clover::kernels::cpu {

CpuPath path_of_loops() {
  return cpu_path();
}

}  // namespace clover::kernels::cpu
