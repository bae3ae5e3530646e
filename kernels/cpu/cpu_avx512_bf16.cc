// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 and the flags of cpu_avx2.cc.
#include "kernels/cpu/table.h"
#include "kernels/linear/linear_bf16_pairs.h"

namespace clover::kernels::cpu {
namespace {

CpuBodies with_pairs() {
  CpuBodies bodies = table;
  bodies.linear_bf16 = linear_of_pairs;
  return bodies;
}

}  // namespace

const CpuBodies& avx512_bf16_bodies() {
  static const CpuBodies bodies = with_pairs();
  return bodies;
}

}  // namespace clover::kernels::cpu
