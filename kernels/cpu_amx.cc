// Compiled with the flags of cpu_avx512_bf16.cc, whose bodies serve all but bf16 products.
#include "kernels/body/linear_amx.h"

namespace clover::kernels::cpu {
namespace {

int64_t tile_rows_of(Element element) {
  return element == Element::bf16 ? register_lines : avx512_bf16_bodies().linear_tile_rows(element);
}

void pack(const LinearCall& call, int64_t tile_begin, int64_t tile_end) {
  (call.element == Element::bf16 ? amx_pack : avx512_bf16_bodies().linear_pack)(call, tile_begin, tile_end);
}

void panels(const LinearCall& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  (call.element == Element::bf16 ? amx_panels : avx512_bf16_bodies().linear_panels)(call, begin, end,
                                                                                    tile_begin, tile_end);
}

CpuBodies with_tiles() {
  CpuBodies bodies = avx512_bf16_bodies();
  bodies.linear_tile_rows = tile_rows_of;
  bodies.linear_pack = pack;
  bodies.linear_panels = panels;
  return bodies;
}

}  // namespace

const CpuBodies& amx_bodies() {
  static const CpuBodies bodies = with_tiles();
  return bodies;
}

}  // namespace clover::kernels::cpu
