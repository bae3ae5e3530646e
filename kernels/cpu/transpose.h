#pragma once

#include <utility>

#include "kernels/cpu/lanes.h"

// Transposes sixteen lines of sixteen lanes.
namespace clover::kernels::cpu {
namespace {

/// Swaps the off-diagonal blocks of `Size` lanes of two lines that are `Size` apart.
template <int Size, size_t... Lane>
CLOVER_INLINE void swap_blocks(U16& upper, U16& lower, std::index_sequence<Lane...>) {
  const U16 a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, (Lane & Size ? 16 + Lane - Size : Lane)...);
  lower = __builtin_shufflevector(a, b, (Lane & Size ? 16 + Lane : Lane + Size)...);
}

template <int Size>
CLOVER_INLINE void swap_all_blocks(U16* lines) {
  each<16>([&](auto i) CLOVER_INLINED {
    if constexpr ((i & Size) == 0)
      swap_blocks<Size>(lines[i], lines[i + Size], std::make_index_sequence<16>{});
  });
}

/// Lane j of line i for lane i of line j.
CLOVER_INLINE void transpose(U16* lines) {
  swap_all_blocks<8>(lines);
  swap_all_blocks<4>(lines);
  swap_all_blocks<2>(lines);
  swap_all_blocks<1>(lines);
}

}  // namespace
}  // namespace clover::kernels::cpu
