#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes.h"
#if defined(CLOVER_EMULATE_AMX)
#include <cmath>
#include <cstdlib>
#endif

// The eight tile registers of AMX (Intel SDM volume 1, chapter 18).  Each has 16 lines (Intel's "rows") of 64
// bytes; configure() says how many of them instructions use.  Assembly, because the compiler's intrinsics
// take a register's number only as a literal and do not tell the compiler that they read memory.  Tests
// define CLOVER_EMULATE_AMX, and the same functions work on ordinary memory.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t register_lines = 16, line_bytes = 64, register_bytes = register_lines * line_bytes;
constexpr int64_t register_inputs = line_bytes / 2;  // bf16 numbers in a line

#if defined(CLOVER_EMULATE_AMX)

struct TileRegister {
  int lines = 0;
  float sum[16][16];  // as an accumulator: [row, output] fp32
  uint16_t
      pairs[16][32];  // as an operand: x [row, input] or pairs of weights [input / 2, 2 * output + input % 2]
};
thread_local TileRegister tile_registers[8];

void configure(int row_registers, int rows) {
  for (int i = 0; i < 8; ++i) tile_registers[i].lines = i < row_registers ? rows : 16;
}
void release() {
  for (TileRegister& tile : tile_registers) tile.lines = 0;
}
template <int I>
void zero() {
  std::memset(tile_registers[I].sum, 0, sizeof tile_registers[I].sum);
}
template <int I>
void load(const char* from, int64_t stride) {
  for (int line = 0; line < tile_registers[I].lines; ++line)
    std::memcpy(tile_registers[I].pairs[line], from + line * stride, line_bytes);
}
template <int I>
void store(float* to, int64_t stride) {
  for (int line = 0; line < tile_registers[I].lines; ++line)
    std::memcpy(reinterpret_cast<char*>(to) + line * stride, tile_registers[I].sum[line], line_bytes);
}
inline float bf16_to_float(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
// As TDPBF16PS: the even and the odd inputs of a block are summed separately, then added to the accumulator.
template <int To, int X, int W>
void add_products_of_tiles() {
  // Where the processor would raise an exception.
  if (tile_registers[To].lines != tile_registers[X].lines || tile_registers[W].lines != 16) std::abort();
  for (int row = 0; row < tile_registers[X].lines; ++row) {
    for (int output = 0; output < 16; ++output) {
      float sums[2] = {0, 0};
      for (int k = 0; k < 32; ++k) {
        sums[k % 2] =
            std::fma(bf16_to_float(tile_registers[X].pairs[row][k]),
                     bf16_to_float(tile_registers[W].pairs[k / 2][2 * output + k % 2]), sums[k % 2]);
      }
      tile_registers[To].sum[row][output] += sums[0] + sums[1];
    }
  }
}

#else

/// Gives registers 0 .. row_registers - 1 `rows` lines each and the others 16, for this thread until
/// release().
void configure(int row_registers, int rows) {
  struct {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t lines[16] = {};
  } configuration;
  static_assert(sizeof configuration == 64);
  for (int i = 0; i < 8; ++i) {
    configuration.bytes[i] = line_bytes;
    configuration.lines[i] = static_cast<uint8_t>(i < row_registers ? rows : register_lines);
  }
  asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
}
void release() {
  asm volatile("tilerelease" ::: "memory");
}
template <int I>
CLOVER_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(I));
}
template <int I>
CLOVER_INLINE void load(const char* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(I) : "memory");
}
template <int I>
CLOVER_INLINE void store(float* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(I) : "memory");
}
/// TDPBF16PS on registers To, X and W: To[row][output] += sum over 32 inputs k of X[row][k] * W[output][k],
/// where W holds pairs of inputs: line k / 2, numbers 2 * output + k % 2.
template <int To, int X, int W>
CLOVER_INLINE void add_products_of_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(To), "i"(X), "i"(W));
}

#endif

}  // namespace
}  // namespace clover::kernels::cpu
