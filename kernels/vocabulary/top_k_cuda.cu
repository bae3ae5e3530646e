#include "kernels/vocabulary/ranking.cuh"
#include "kernels/vocabulary/top_k.h"

// Rows are few and long, so each is cut into chunks, one for each block; a second kernel merges the chunks'
// results. Which value is in which chunk, and the order of sums, depend on the row's width alone.
namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int values_a_thread = 8, chunk_values = threads * values_a_thread;
constexpr int most_warps = 32;  // of any block

// Rows with a larger k, or of more chunks, are ranked in k passes over the row.
constexpr int64_t most_ranked = 64;
constexpr int64_t most_chunks = most_warps * warp_size;  // a list a lane

int64_t chunks_of(int64_t width) {
  return (width + chunk_values - 1) / chunk_values;
}

/// The k best keys of the warp, best first, written by lane 0; no_key where there are fewer.
__device__ inline void rank_in_warp(const uint64_t (&keys)[values_a_thread], int k, uint64_t* list) {
  uint64_t last = above_all;
  for (int i = 0; i < k; ++i) {
    uint64_t best = no_key;
#pragma unroll
    for (const uint64_t key : keys)
      if (key < last && key > best) best = key;
    last = warp_best(best);
    if (threadIdx.x % warp_size == 0) list[i] = last;
  }
}

/// The same from `count` such lists of k, one for each lane.
__device__ inline void merge_in_warp(const uint64_t* lists, int count, int k, uint64_t* list) {
  const int lane = threadIdx.x % warp_size;
  const uint64_t* mine = lists + lane * k;
  uint64_t first = lane < count ? mine[0] : no_key;
  int taken = 0;
  for (int i = 0; i < k; ++i) {
    const uint64_t best = warp_best(first);
    if (lane == 0) list[i] = best;
    if (first == no_key || first != best) continue;
    first = ++taken < k ? mine[taken] : no_key;
  }
}

/// The largest value of a chunk, and the sum of exp(value - largest); all threads of its block call it.
__device__ inline float2 sum_of_chunk(const float (&held)[values_a_thread]) {
  float largest = minus_infinity(), sum = 0;
#pragma unroll
  for (const float value : held) largest = larger(value, largest);
  largest = block_max<warps>(largest);
  const float reference = largest == minus_infinity() ? 0 : largest;  // -inf less itself is not a number
#pragma unroll
  for (const float value : held) sum += exp_one(value - reference);
  return {largest, block_sum<warps>(sum)};
}

/// The log-sum-exp of a row from those of its chunks, computed by one warp.
__device__ inline void add_chunks(const float2* parts, int chunks, float* out) {
  const int lane = threadIdx.x % warp_size;
  float largest = minus_infinity(), sum = 0;
  for (int i = lane; i < chunks; i += warp_size) largest = larger(parts[i].x, largest);
  largest = warp_max(largest);
  for (int i = lane; i < chunks; i += warp_size) sum += parts[i].y * exp_one(parts[i].x - largest);
  sum = warp_sum(sum);
  if (lane != 0) return;
  // An infinite maximum is the answer itself.
  const bool infinite = largest == minus_infinity() || largest == -minus_infinity();
  *out = infinite ? largest : static_cast<float>(largest + log(static_cast<double>(sum)));
}

/// Sums of chunk blockIdx.y of row blockIdx.x; parts [rows, chunks].
__global__ void __launch_bounds__(threads) sum_chunks(const float* logits, int64_t width, float2* parts) {
  launch_dependents();
  wait_for_prior_kernel();
  const float* x = logits + static_cast<int64_t>(blockIdx.x) * width;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * chunk_values;
  float held[values_a_thread];
#pragma unroll
  for (int i = 0; i < values_a_thread; ++i) {
    const int64_t index = begin + i * threads + threadIdx.x;
    held[i] = index < width ? x[index] : minus_infinity();
  }
  const float2 sum = sum_of_chunk(held);
  if (threadIdx.x == 0) parts[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = sum;
}

/// One warp for each row.
__global__ void __launch_bounds__(warp_size) add_rows(const float2* parts, int chunks, float* out) {
  launch_dependents();
  wait_for_prior_kernel();
  add_chunks(parts + static_cast<int64_t>(blockIdx.x) * chunks, chunks, out + blockIdx.x);
}

/// The k best of chunk blockIdx.y of row blockIdx.x; lists [rows, chunks, k].  With `Sums` also what
/// sum_chunks makes.
template <bool Sums>
__global__ void __launch_bounds__(threads)
    rank_chunks(const float* logits, int64_t width, int k, uint64_t* lists, float2* parts) {
  launch_dependents();
  wait_for_prior_kernel();
  uint64_t* of_warps = shared_memory<uint64_t>();  // [warps, k]
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / warp_size;
  const uint32_t begin = blockIdx.y * chunk_values;
  const float* x = logits + row * width;
  uint64_t keys[values_a_thread];
  float held[values_a_thread];
#pragma unroll
  for (int i = 0; i < values_a_thread; ++i) {
    const uint32_t index = begin + i * threads + threadIdx.x;
    held[i] = index < width ? x[index] : minus_infinity();
    keys[i] = index < width ? key_of(held[i], index) : no_key;
  }
  if constexpr (Sums) {
    const float2 sum = sum_of_chunk(held);
    if (threadIdx.x == 0) parts[row * gridDim.y + blockIdx.y] = sum;
  }
  rank_in_warp(keys, k, of_warps + warp * k);
  __syncthreads();
  if (warp == 0) merge_in_warp(of_warps, warps, k, lists + (row * gridDim.y + blockIdx.y) * k);
}

/// Where a row's results are written: values and indices [rows, k]; only indices where `values` is null.
struct Ranking {
  float* values;
  int64_t* indices;
  const int64_t* names;  // of indices, [width], or null
};

/// The value is loaded again, because a key does not tell -0 from 0.
__device__ inline void write_ranked(const float* x, uint64_t key, int64_t at, const Ranking& to) {
  const uint32_t index = index_of(key);
  const float value = larger(x[index], minus_infinity());
  const bool none = to.values == nullptr && value == minus_infinity();
  to.indices[at] = none ? -1 : to.names != nullptr ? to.names[index] : int64_t{index};
  if (to.values != nullptr) to.values[at] = value;
}

/// One block for each row, one warp for each 32 chunks; with `parts` the last warp adds up their sums.
__global__ void __launch_bounds__(most_warps* warp_size)
    merge_chunks(const float* logits, int64_t width, const uint64_t* lists, const float2* parts, int chunks,
                 int k, Ranking to, float* log_sums) {
  launch_dependents();
  wait_for_prior_kernel();
  uint64_t* of_warps = shared_memory<uint64_t>();  // [warps, k], and [k] for the row
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / warp_size, used = blockDim.x / warp_size;
  const int first = warp * warp_size, left = chunks - first;
  merge_in_warp(lists + (row * chunks + first) * k, left < warp_size ? left : warp_size, k,
                of_warps + warp * k);
  __syncthreads();
  const uint64_t* best = of_warps;
  if (used > 1) {
    if (warp == 0) merge_in_warp(of_warps, used, k, of_warps + used * k);
    __syncthreads();
    best = of_warps + used * k;
  }
  for (int i = threadIdx.x; i < k; i += blockDim.x)
    write_ranked(logits + row * width, best[i], row * k + i, to);
  if (parts != nullptr && warp == used - 1) add_chunks(parts + row * chunks, chunks, log_sums + row);
}

/// One block for each row, k passes: each finds the best of what is left.
__global__ void __launch_bounds__(threads)
    rank_in_passes(const float* logits, int64_t width, int64_t k, Ranking to) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t row = blockIdx.x;
  const float* x = logits + row * width;
  uint64_t last = above_all;
  for (int64_t i = 0; i < k; ++i) {
    uint64_t best = no_key;
    for (int64_t index = threadIdx.x; index < width; index += threads) {
      const uint64_t key = key_of(x[index], static_cast<uint32_t>(index));
      if (key < last && key > best) best = key;
    }
    last = block_best<warps>(best);
    if (threadIdx.x == 0) write_ranked(x, last, row * k + i, to);
  }
}

/// The index of the best of a row's keys, one block for each row; -1 where the best is -inf.
__global__ void __launch_bounds__(threads)
    find_best_key(const uint64_t* keys, int64_t count, int64_t* indices) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t row = blockIdx.x;
  const uint64_t* of_row = keys + row * count;
  uint64_t best = no_key;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += threads)
    if (of_row[i] > best) best = of_row[i];
  best = block_best<warps>(best);
  const bool none = best >> 32 == key_of(minus_infinity(), 0) >> 32;
  if (threadIdx.x == 0) indices[row] = none ? -1 : int64_t{index_of(best)};
}

bool in_passes(int64_t width, int64_t k) {
  return k > most_ranked || chunks_of(width) > most_chunks;
}

/// How many keys the chunks' lists hold; none for rows that are ranked in passes.
int64_t list_keys(int64_t rows, int64_t width, int64_t k) {
  return in_passes(width, k) ? 0 : rows * chunks_of(width) * k;
}

/// The top k of each row; also log_sums where `parts` is given, for rows that are not ranked in passes.
void rank(const TopKCall& call, float2* parts, const GpuContext& context) {
  const auto [logits, rows, width, k, values, indices, names, log_sums] = call;
  const Ranking to{values, indices, names};
  if (in_passes(width, k)) {
    launch("top_k", rank_in_passes, dim3(rows), threads, 0, context.stream, logits, width, k, to);
    return;
  }
  const auto lists = context.scratch<uint64_t>(list_keys(rows, width, k));
  const int chunks = static_cast<int>(chunks_of(width)), merging = (chunks + warp_size - 1) / warp_size;
  const int ranked = static_cast<int>(k);
  const int64_t list_bytes = k * static_cast<int64_t>(sizeof(uint64_t));
  launch("top_k", parts != nullptr ? rank_chunks<true> : rank_chunks<false>, dim3(rows, chunks), threads,
         warps * list_bytes, context.stream, logits, width, ranked, lists.get(), parts);
  launch("top_k", merge_chunks, dim3(rows), merging * warp_size, (merging + 1) * list_bytes, context.stream,
         logits, width, lists.get(), parts, chunks, ranked, to, log_sums);
}

/// `parts`: [rows, chunks].
void sum_rows(const LogSumCall& call, float2* parts, const GpuContext& context) {
  const int chunks = static_cast<int>(chunks_of(call.width));
  launch("log_sum_exp", sum_chunks, dim3(call.rows, chunks), threads, 0, context.stream, call.logits,
         call.width, parts);
  launch("log_sum_exp", add_rows, dim3(call.rows), warp_size, 0, context.stream, parts, chunks, call.out);
}

}  // namespace

void run_on_gpu(const TopKCall& call, const GpuContext& context) {
  if (call.log_sums == nullptr) return rank(call, nullptr, context);
  const auto parts = context.scratch<float2>(call.rows * chunks_of(call.width));
  const bool once = !in_passes(call.width, call.k);
  rank(call, once ? parts.get() : nullptr, context);
  if (!once) sum_rows({call.logits, call.rows, call.width, call.log_sums}, parts.get(), context);
}

void run_on_gpu(const ArgMaxCall& call, const GpuContext& context) {
  rank({call.logits, call.rows, call.width, 1, nullptr, call.indices, nullptr, nullptr}, nullptr, context);
}

void run_on_gpu(const LogSumCall& call, const GpuContext& context) {
  const auto parts = context.scratch<float2>(call.rows * chunks_of(call.width));
  sum_rows(call, parts.get(), context);
}

void run_on_gpu(const BestKeyCall& call, const GpuContext& context) {
  launch("arg_max", find_best_key, dim3(call.rows), threads, 0, context.stream, call.keys, call.count,
         call.indices);
}

}  // namespace clover::kernels
