#pragma once

#include <cstdint>

// The inner loops of the CPU twins, compiled once for each instruction family (cpu_portable.cc, cpu_avx2.cc,
// cpu_avx512_bf16.cc, cpu_amx.cc) from the same sources in kernels/body/.  Raw pointers only: those files are
// compiled with wider instruction sets than the rest, and an inline function of a shared header would carry
// them everywhere.
namespace clover::kernels::cpu {

enum class Element { fp32, bf16, fp16 };

/// linear() after its checks.  Rows are cut into ceil(rows / LinearBody::tile_rows) tiles; `scratch` holds
/// them repacked, the last one at full height.
struct LinearCall {
  const void* x;       // [rows, inputs]
  const void* panels;  // PackedWeight's layout
  const float* bias;   // [outputs] or null
  float* y;            // [rows, outputs]
  int64_t rows, outputs, inputs;
  Element element;
  bool accumulate;
  float* scratch;  // linear_scratch(rows of all tiles, inputs) floats, best on a cache line
};

/// tree_attention() after its checks; see attention.h.
struct AttentionCall {
  const float* q;
  const void* k;
  const void* v;
  void* out;
  const int32_t *sequence, *contiguous, *path_begin, *path, *page_table;
  int64_t query_heads, kv_heads, head_size, page_size, pages_per_sequence;
  Element cache, result;
  float scale;
};

struct RopeCall {
  const float *qkv, *cos, *sin;
  const int64_t* slots;
  float* q;
  void *k, *v;
  int64_t query_heads, kv_heads, head_size;
  Element cache;
};

struct LinearBody {
  int64_t tile_rows;
  /// Repacks tiles [begin, end) of x into scratch.
  void (*pack)(const LinearCall&, int64_t tile_begin, int64_t tile_end);
  /// Computes the outputs of panels [begin, end) for tiles [tile_begin, tile_end).
  void (*panels)(const LinearCall&, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end);
};

/// Every member computes each row (or element) by itself, so callers may split the range as they like.
struct CpuBodies {
  LinearBody linear_bf16, linear_any;  // the second for every other element
  const LinearBody& linear(Element element) const {
    return element == Element::bf16 ? linear_bf16 : linear_any;
  }

  /// Rows [first_row, first_row + rows) of one sequence, the query heads of one kv head.
  void (*attention_group)(const AttentionCall&, int64_t first_row, int64_t rows, int64_t kv_head,
                          float* scratch);
  void (*rope)(const RopeCall&, int64_t begin, int64_t end);

  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
                   int64_t begin, int64_t end);
  void (*silu_mul)(const float* gate_up, int64_t width, void* out, Element element, int64_t begin,
                   int64_t end);
  void (*add_silu)(float* z, const float* a, int64_t begin, int64_t end);
  void (*add_gated)(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
                    float eps, int64_t begin, int64_t end);

  float (*exp)(float x);
  /// Largest of n >= 0 values, NaN as -inf.
  float (*maximum)(const float* x, int64_t n);
  /// out[b] = maximum of x[b * block .. ); ceil(n / block) values; block is a multiple of 32.
  void (*block_maxima)(const float* x, int64_t n, int64_t block, float* out);
  /// Index of the first element equal to value, n if none.
  int64_t (*first_equal)(const float* x, int64_t n, float value);
  /// sum of exp(x - shift) in one fixed order.
  float (*sum_exp)(const float* x, int64_t n, float shift);
  /// distance[i] = (shift - x[i]) / temperature, at least 0, +inf for NaN; weight[i] = exp(-distance[i]).
  void (*boltzmann)(const float* x, int64_t n, float shift, float temperature, float* distance,
                    float* weight);
};

const CpuBodies& portable_bodies();
const CpuBodies& avx2_bodies();
const CpuBodies& avx512_bf16_bodies();
const CpuBodies& amx_bodies();

/// Those of cpu_path().
const CpuBodies& bodies();

/// Floats that LinearCall::scratch holds, and attention_group's scratch.
constexpr int64_t linear_scratch(int64_t rows, int64_t inputs) {
  return rows * ((inputs + 31) / 32 * 32);
}
constexpr int64_t attention_keys = 64;  // attention_block
constexpr int64_t attention_group_queries = 48;
constexpr int64_t attention_scratch(int64_t head_size) {
  return attention_keys * head_size + attention_group_queries * (head_size + attention_keys);
}

}  // namespace clover::kernels::cpu
