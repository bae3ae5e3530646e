// Compiled with the flags of cpu_avx512_bf16.cc, whose bodies serve all but bf16 products and attention over
// bf16 caches.
#include "kernels/attention/attention_tiles.h"
#include "kernels/linear/linear_amx.h"

namespace clover::kernels::cpu {
namespace {

CpuBodies with_tiles() {
  CpuBodies bodies = avx512_bf16_bodies();
  bodies.linear_bf16 = linear_of_tiles;
  bodies.attention_group = tile_attention_group;
  return bodies;
}

}  // namespace

const CpuBodies& amx_bodies() {
  static const CpuBodies bodies = with_tiles();
  return bodies;
}

}  // namespace clover::kernels::cpu
