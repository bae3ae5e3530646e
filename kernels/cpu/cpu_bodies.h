#pragma once

#include <cstdint>

#include "kernels/calls.h"

// The inner loops of the CPU twins, compiled once for each instruction family (cpu_portable.cc, cpu_avx2.cc,
// cpu_avx512_bf16.cc, cpu_amx.cc) from the same sources, the subjects' *_simd.h.  Raw pointers only: those
// files are compiled with wider instruction sets than the rest, and an inline function of a shared header
// would carry them everywhere.
namespace clover::kernels::cpu {

/// A product whose rows of x are cut into ceil(rows / LinearBody::tile_rows) tiles and repacked, or read
/// where they lie.
struct LinearWork : LinearCall {
  float* scratch;  // the tiles, the last one at full height: linear_scratch(rows of all tiles, inputs)
                   // floats, best on a cache line; unused where they are read where they lie
};

/// Partial results of attention, for threads that share the keys of few rows: [R * Hq, count, d + 2] floats,
/// the last two the largest score and the mass.  None where each row's keys are taken by one thread.
struct AttentionSplits {
  float* partials;
  int64_t count;
};

/// How many partial results a path of `length` has.
constexpr int64_t split_keys = 256;  // attention_split
constexpr int64_t attention_splits(int64_t length) {
  return length <= split_keys ? 1 : (length + split_keys - 1) / split_keys;
}

/// Rows [first_row, first_row + rows) of one sequence, the query heads of one kv head.
struct AttentionItem {
  int64_t first_row, rows, kv_head, split;
};

/// A probability relative to the largest, as a multiple of 2^-40: sums of integers do not depend on their
/// order.  In two parts of 20 bits, which fp32 cuts it into.
constexpr uint64_t whole_mass(int32_t high, int32_t low) {
  return (static_cast<uint64_t>(high) << 20) + static_cast<uint64_t>(low);
}

/// Tokens of a row, by index.
struct NearTokens {
  float* distance;  // of the logit from the largest, in units of temperature; this and the next three have
                    // room for near_room(n)
  int32_t* high;
  int32_t* low;
  int32_t* index;
  int64_t count;
  uint64_t mass_of_all;  // of the row, these and others

  uint64_t mass(int64_t i) const { return whole_mass(high[i], low[i]); }
};
constexpr int64_t near_room(int64_t n) {
  return n + 15;  // whole vectors of the widest family
}

struct LinearBody {
  int64_t tile_rows;
  int64_t input_bytes;  // of an input in a tile
  int64_t block_bytes;  // of the rows multiplied at a time, which every panel passes by: a second-level cache
                        // should hold them beside weights
  /// Whether `panels` reads the rows where they lie.
  bool (*in_place)(const LinearCall&);
  /// Repacks tiles [begin, end) of x into scratch, for `panels`.
  void (*pack)(const LinearWork&, int64_t tile_begin, int64_t tile_end);
  /// Computes the outputs of panels [begin, end) for tiles [tile_begin, tile_end), and with silu_mul what
  /// becomes of them.
  void (*panels)(const LinearWork&, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end);
};

/// Every member computes each row (or element) by itself, so callers may split the range as they like.
struct CpuBodies {
  LinearBody linear_bf16, linear_any;  // the second for every other element
  const LinearBody& linear(Element element) const {
    return element == Element::bf16 ? linear_bf16 : linear_any;
  }

  /// All keys of an item, or those of its split for attention_merge, while the beginning of `next` (nullptr:
  /// none) is asked of memory.
  void (*attention_group)(const AttentionCall&, const AttentionItem&, const AttentionItem* next,
                          const AttentionSplits&, float* scratch);
  void (*attention_merge)(const AttentionCall&, const AttentionSplits&, int64_t begin, int64_t end,
                          float* scratch);
  /// What follows the product of queries, keys and values, `sums` being row `begin` of it.
  void (*rope)(const float* sums, const RopeCall&, int64_t begin, int64_t end);

  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
                   int64_t begin, int64_t end);
  void (*add_silu)(float* z, const float* a, int64_t begin, int64_t end);
  void (*add_gated)(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
                    float eps, bool silu, int64_t begin, int64_t end);

  float (*exp)(float x);
  /// Largest of n >= 0 values, NaN as -inf.
  float (*maximum)(const float* x, int64_t n);
  /// out[b] = maximum of x[b * block .. ); ceil(n / block) values; block is a multiple of 32.
  void (*block_maxima)(const float* x, int64_t n, int64_t block, float* out);
  /// Index of the first element equal to value, n if none.
  int64_t (*first_equal)(const float* x, int64_t n, float value);
  /// sum of exp(x - shift) in one fixed order.
  float (*sum_exp)(const float* x, int64_t n, float shift);
  /// Finds near.mass_of_all and all tokens that have mass and a distance of at most `limit`, among others
  /// whose mass is set to 0.  distance = (shift - x) / temperature, at least 0, +inf for NaN; mass =
  /// exp(-distance), cut.
  void (*weigh)(const float* x, int64_t n, float shift, float temperature, float limit, NearTokens& near);
};

const CpuBodies& portable_bodies();
const CpuBodies& avx2_bodies();
const CpuBodies& avx512_bf16_bodies();
const CpuBodies& amx_bodies();

/// Those of cpu_path().
const CpuBodies& bodies();

/// Floats that LinearWork::scratch holds, and attention_group's scratch.
constexpr int64_t linear_scratch(int64_t rows, int64_t inputs) {
  return rows * ((inputs + 31) / 32 * 32);
}
constexpr int64_t attention_keys = 64;  // attention_block
constexpr int64_t attention_group_queries = 48;
constexpr int64_t attention_scratch(int64_t head_size) {
  return attention_keys * head_size + attention_group_queries * (2 * head_size + attention_keys);
}
/// What the family with tile registers has behind it: TileRoom.
constexpr int64_t attention_tile_scratch(int64_t head_size) {
  return (3 * attention_group_queries + 2 * attention_keys) * head_size / 2 + 3 * 16 * attention_keys / 2 +
         16;
}

}  // namespace clover::kernels::cpu
