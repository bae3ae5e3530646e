#include "kernels/vocabulary/ranking.cuh"
#include "kernels/vocabulary/top_k.h"

// Rows are few and long, so each is cut into chunks of chunk_values logits, one block for each; a second
// kernel merges the chunks' results. Which value is in which chunk, and the order of sums, depend on the
// row's width alone. Keys are those of vocabulary/ranking.cuh.
namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int values_per_thread = 8, chunk_values = threads * values_per_thread;
constexpr int max_warps = 32;  // that a block can have

// Rows with a larger k, or of more chunks, are ranked in k passes over the row.
constexpr int64_t max_ranked = 64;
constexpr int64_t max_chunks = max_warps * warp_size;  // merge_chunks gives each lane the list of one chunk

int64_t chunks_of(int64_t width) {
  return (width + chunk_values - 1) / chunk_values;
}

/// Writes the k largest keys of the warp to `list` [k], largest first, filled up with no_key.
__device__ inline void rank_in_warp(const uint64_t (&keys)[values_per_thread], int k, uint64_t* list) {
  uint64_t last = key_above_all;
  for (int i = 0; i < k; ++i) {
    uint64_t best = no_key;
#pragma unroll
    for (const uint64_t key : keys)
      if (key < last && key > best) best = key;
    last = warp_best(best);
    if (threadIdx.x % warp_size == 0) list[i] = last;
  }
}

/// Merges `count` such lists [count, k], at most one for each lane, into `list` [k].
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

/// {largest value of a chunk, sum of exp(value - largest)}; `thread_values` is the thread's share of the
/// chunk. All threads of the block call it.
__device__ inline float2 sum_of_chunk(const float (&thread_values)[values_per_thread]) {
  float largest = minus_infinity(), sum = 0;
#pragma unroll
  for (const float value : thread_values) largest = larger(value, largest);
  largest = block_max<warps>(largest);
  const float reference = largest == minus_infinity() ? 0 : largest;  // -inf - (-inf) would be NaN
#pragma unroll
  for (const float value : thread_values) sum += exp_scalar(value - reference);
  return {largest, block_sum<warps>(sum)};
}

/// Writes the log-sum-exp of a row to *out, from the sum_of_chunk of each of its chunks [chunks]. One warp
/// calls it.
__device__ inline void add_chunks(const float2* chunk_sums, int chunks, float* out) {
  const int lane = threadIdx.x % warp_size;
  float largest = minus_infinity(), sum = 0;
  for (int i = lane; i < chunks; i += warp_size) largest = larger(chunk_sums[i].x, largest);
  largest = warp_max(largest);
  for (int i = lane; i < chunks; i += warp_size)
    sum += chunk_sums[i].y * exp_scalar(chunk_sums[i].x - largest);
  sum = warp_sum(sum);
  if (lane != 0) return;
  // If the maximum is infinite, it is the result.
  const bool infinite = largest == minus_infinity() || largest == -minus_infinity();
  *out = infinite ? largest : static_cast<float>(largest + log(static_cast<double>(sum)));
}

/// Writes sum_of_chunk of chunk blockIdx.y of row blockIdx.x to chunk_sums [rows, chunks].
__global__ void __launch_bounds__(threads)
    sum_chunks(const float* logits, int64_t width, float2* chunk_sums) {
  launch_dependents();
  wait_for_prior_kernel();
  const float* x = logits + static_cast<int64_t>(blockIdx.x) * width;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * chunk_values;
  float thread_values[values_per_thread];
#pragma unroll
  for (int i = 0; i < values_per_thread; ++i) {
    const int64_t index = begin + i * threads + threadIdx.x;
    thread_values[i] = index < width ? x[index] : minus_infinity();
  }
  const float2 sum = sum_of_chunk(thread_values);
  if (threadIdx.x == 0) chunk_sums[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = sum;
}

/// Writes each row's log-sum-exp to out [rows]. One warp for each row.
__global__ void __launch_bounds__(warp_size) add_rows(const float2* chunk_sums, int chunks, float* out) {
  launch_dependents();
  wait_for_prior_kernel();
  add_chunks(chunk_sums + static_cast<int64_t>(blockIdx.x) * chunks, chunks, out + blockIdx.x);
}

/// Writes the k largest keys of chunk blockIdx.y of row blockIdx.x to lists [rows, chunks, k].  With `Sums`
/// it also does what sum_chunks does.
template <bool Sums>
__global__ void __launch_bounds__(threads)
    rank_chunks(const float* logits, int64_t width, int k, uint64_t* lists, float2* chunk_sums) {
  launch_dependents();
  wait_for_prior_kernel();
  uint64_t* warp_lists = shared_memory<uint64_t>();  // [warps, k]
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / warp_size;
  const uint32_t begin = blockIdx.y * chunk_values;
  const float* x = logits + row * width;
  uint64_t keys[values_per_thread];
  float thread_values[values_per_thread];
#pragma unroll
  for (int i = 0; i < values_per_thread; ++i) {
    const uint32_t index = begin + i * threads + threadIdx.x;
    thread_values[i] = index < width ? x[index] : minus_infinity();
    keys[i] = index < width ? key_of(thread_values[i], index) : no_key;
  }
  if constexpr (Sums) {
    const float2 sum = sum_of_chunk(thread_values);
    if (threadIdx.x == 0) chunk_sums[row * gridDim.y + blockIdx.y] = sum;
  }
  rank_in_warp(keys, k, warp_lists + warp * k);
  __syncthreads();
  if (warp == 0) merge_in_warp(warp_lists, warps, k, lists + (row * gridDim.y + blockIdx.y) * k);
}

/// Where results are written.
struct Ranking {
  float* values;             // [rows, k], or null: only the index is wanted, -1 if the value is -inf
  int64_t* indices;          // [rows, k]
  const int64_t* token_map;  // [width] what is written instead of an index, or null
};

/// Writes the value and index of `key` to element `at` of the results. The value is loaded again, because the
/// keys of -0 and 0 are equal.
__device__ inline void write_ranked(const float* x, uint64_t key, int64_t at, const Ranking& to) {
  const uint32_t index = index_of(key);
  const float value = larger(x[index], minus_infinity());
  const bool no_token = to.values == nullptr && value == minus_infinity();
  to.indices[at] = no_token ? -1 : to.token_map != nullptr ? to.token_map[index] : int64_t{index};
  if (to.values != nullptr) to.values[at] = value;
}

/// Merges the lists of a row's chunks. One block for each row, one warp for each 32 chunks; if `chunk_sums`
/// is given, the last warp also writes the row's log-sum-exp to log_sums.
__global__ void __launch_bounds__(max_warps* warp_size)
    merge_chunks(const float* logits, int64_t width, const uint64_t* lists, const float2* chunk_sums,
                 int chunks, int k, Ranking to, float* log_sums) {
  launch_dependents();
  wait_for_prior_kernel();
  uint64_t* warp_lists = shared_memory<uint64_t>();  // [warp_count, k], then the row's list [k]
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / warp_size, warp_count = blockDim.x / warp_size;
  const int first = warp * warp_size, remaining = chunks - first;
  merge_in_warp(lists + (row * chunks + first) * k, remaining < warp_size ? remaining : warp_size, k,
                warp_lists + warp * k);
  __syncthreads();
  const uint64_t* best = warp_lists;
  if (warp_count > 1) {
    if (warp == 0) merge_in_warp(warp_lists, warp_count, k, warp_lists + warp_count * k);
    __syncthreads();
    best = warp_lists + warp_count * k;
  }
  for (int i = threadIdx.x; i < k; i += blockDim.x)
    write_ranked(logits + row * width, best[i], row * k + i, to);
  if (chunk_sums != nullptr && warp == warp_count - 1)
    add_chunks(chunk_sums + row * chunks, chunks, log_sums + row);
}

/// One block for each row, k passes over it: each finds the largest key below the last one found.
__global__ void __launch_bounds__(threads)
    rank_in_passes(const float* logits, int64_t width, int64_t k, Ranking to) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t row = blockIdx.x;
  const float* x = logits + row * width;
  uint64_t last = key_above_all;
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
  const uint64_t* row_keys = keys + row * count;
  uint64_t best = no_key;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += threads)
    if (row_keys[i] > best) best = row_keys[i];
  best = block_best<warps>(best);
  const bool is_minus_infinity = best >> 32 == key_of(minus_infinity(), 0) >> 32;
  if (threadIdx.x == 0) indices[row] = is_minus_infinity ? -1 : int64_t{index_of(best)};
}

bool ranked_in_passes(int64_t width, int64_t k) {
  return k > max_ranked || chunks_of(width) > max_chunks;
}

/// Keys in the lists of all chunks; 0 for rows that are ranked in passes.
int64_t list_keys(int64_t rows, int64_t width, int64_t k) {
  return ranked_in_passes(width, k) ? 0 : rows * chunks_of(width) * k;
}

/// The top k of each row; also log_sums if `chunk_sums` [rows, chunks] is given, which must be null for rows
/// that are ranked in passes.
void rank_rows(const TopKCall& call, float2* chunk_sums, const GpuContext& context) {
  const auto [logits, rows, width, k, values, indices, token_map, log_sums] = call;
  const Ranking to{values, indices, token_map};
  if (ranked_in_passes(width, k)) {
    launch("top_k", rank_in_passes, dim3(rows), threads, 0, context.stream, logits, width, k, to);
    return;
  }
  const auto lists = context.scratch<uint64_t>(list_keys(rows, width, k));
  const int chunks = static_cast<int>(chunks_of(width)), merge_warps = (chunks + warp_size - 1) / warp_size;
  const int ranked = static_cast<int>(k);
  const int64_t list_bytes = k * static_cast<int64_t>(sizeof(uint64_t));
  launch("top_k", chunk_sums != nullptr ? rank_chunks<true> : rank_chunks<false>, dim3(rows, chunks), threads,
         warps * list_bytes, context.stream, logits, width, ranked, lists.get(), chunk_sums);
  launch("top_k", merge_chunks, dim3(rows), merge_warps * warp_size, (merge_warps + 1) * list_bytes,
         context.stream, logits, width, lists.get(), chunk_sums, chunks, ranked, to, log_sums);
}

/// The log-sum-exp of each row; chunk_sums [rows, chunks] is scratch memory.
void sum_rows(const LogSumCall& call, float2* chunk_sums, const GpuContext& context) {
  const int chunks = static_cast<int>(chunks_of(call.width));
  launch("log_sum_exp", sum_chunks, dim3(call.rows, chunks), threads, 0, context.stream, call.logits,
         call.width, chunk_sums);
  launch("log_sum_exp", add_rows, dim3(call.rows), warp_size, 0, context.stream, chunk_sums, chunks,
         call.out);
}

}  // namespace

void run_on_gpu(const TopKCall& call, const GpuContext& context) {
  if (call.log_sums == nullptr) return rank_rows(call, nullptr, context);
  const auto chunk_sums = context.scratch<float2>(call.rows * chunks_of(call.width));
  const bool in_one_read = !ranked_in_passes(call.width, call.k);
  rank_rows(call, in_one_read ? chunk_sums.get() : nullptr, context);
  if (!in_one_read) sum_rows({call.logits, call.rows, call.width, call.log_sums}, chunk_sums.get(), context);
}

void run_on_gpu(const ArgMaxCall& call, const GpuContext& context) {
  rank_rows({call.logits, call.rows, call.width, 1, nullptr, call.indices, nullptr, nullptr}, nullptr,
            context);
}

void run_on_gpu(const LogSumCall& call, const GpuContext& context) {
  const auto chunk_sums = context.scratch<float2>(call.rows * chunks_of(call.width));
  sum_rows(call, chunk_sums.get(), context);
}

void run_on_gpu(const BestKeyCall& call, const GpuContext& context) {
  launch("arg_max", find_best_key, dim3(call.rows), threads, 0, context.stream, call.keys, call.count,
         call.indices);
}

}  // namespace clover::kernels
