#include "kernels/cpu/table.h"

namespace clover::kernels::cpu {

const CpuBodies& portable_bodies() {
  return table;
}

}  // namespace clover::kernels::cpu
