#pragma once

#include <utility>

#include "kernels/cpu/lanes.h"

// Transposes a 16 x 16 matrix of 32-bit numbers, one register ("line") for each row.
namespace clover::kernels::cpu {
namespace {

/// Swaps the off-diagonal blocks of two lines whose numbers differ by `Size`: in every 2 * Size lanes, the
/// upper `Size` lanes of `upper` with the lower `Size` lanes of `lower`.
template <int Size, size_t... Lane>
CLOVER_INLINE void swap_blocks(U32x16& upper, U32x16& lower, std::index_sequence<Lane...>) {
  const U32x16 a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, (Lane & Size ? 16 + Lane - Size : Lane)...);
  lower = __builtin_shufflevector(a, b, (Lane & Size ? 16 + Lane : Lane + Size)...);
}

template <int Size>
CLOVER_INLINE void swap_all_blocks(U32x16* lines) {
  unroll<16>([&](auto i) CLOVER_INLINED {
    if constexpr ((i & Size) == 0)
      swap_blocks<Size>(lines[i], lines[i + Size], std::make_index_sequence<16>{});
  });
}

/// Swaps lane j of line i with lane i of line j, for all i and j.
CLOVER_INLINE void transpose(U32x16* lines) {
  swap_all_blocks<8>(lines);
  swap_all_blocks<4>(lines);
  swap_all_blocks<2>(lines);
  swap_all_blocks<1>(lines);
}

}  // namespace
}  // namespace clover::kernels::cpu
