// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 and the flags of cpu_avx2.cc.
#include "kernels/body/linear_bf16_pairs.h"
#include "kernels/body/table.h"

namespace clover::kernels::cpu {
namespace {

int64_t tile_rows_of(Element element) {
  return element == Element::bf16 ? pair_tile_rows : linear_tile_rows;
}

CpuBodies with_pairs() {
  CpuBodies bodies = table;
  bodies.linear_tile_rows = tile_rows_of;
  bodies.linear_pack = pair_linear_pack;
  bodies.linear_panels = pair_linear_panels;
  return bodies;
}

}  // namespace

const CpuBodies& avx512_bf16_bodies() {
  static const CpuBodies bodies = with_pairs();
  return bodies;
}

}  // namespace clover::kernels::cpu
