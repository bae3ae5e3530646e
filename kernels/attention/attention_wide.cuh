#pragma once

#include "kernels/attention/attention_blocks.cuh"

// Wide tiles: a warpgroup computes scores, weights and weighted values of 64 queries with wgmma, for one
// block of 64 keys after the other. A block's weights are relative to its own largest score, and its result
// is merged into that of the blocks before, so that a row's bits do not depend on the other rows of the tile.
// attention_plan.h defines items, tiles and blocks; attention_blocks.cuh has the steps of an item. Template
// arguments: T, the type of cached numbers; Size, the head size (64 or 128); Groups, warpgroups that
// multiply.
namespace clover::kernels::cuda {
namespace {

constexpr int group_threads = 4 * warp_size;
constexpr int box_bytes = block_keys * swizzled_row_bytes;

/// Shared memory of a thread block: the queries of each warpgroup, a ring of stages (each a block of keys and
/// one of values), and barriers.
template <int Size, int Groups>
struct WideSharedMemory {
  static constexpr int halves = Size / 64;  // boxes of 64 dimensions: halves of a head of 128
  static constexpr int block_bytes = halves * box_bytes;
  static constexpr int query_bytes = block_bytes;  // of a warpgroup
  static constexpr int threads = (Groups + 1) * group_threads, thread_blocks_per_multiprocessor = 2 / Groups;
  static constexpr int copying_registers = Groups == 1 ? 40 : 24,
                       multiplying_registers = Groups == 1 ? 216 : 240;
  static constexpr int barrier_bytes = 512;  // at most
  static constexpr int stages =
      ((228 << 10) / thread_blocks_per_multiprocessor - (1 << 10) - barrier_bytes - Groups * query_bytes) /
      (2 * block_bytes);
  static constexpr int ring = Groups * query_bytes, barriers = ring + stages * 2 * block_bytes;
  static constexpr int64_t bytes = barriers + (4 * stages + 1) * sizeof(Barrier);
  static_assert(stages >= 2 && (4 * stages + 1) * 8 <= barrier_bytes);

  unsigned char* first = aligned_shared_memory();
  __device__ WideSharedMemory() { keep_shared_address_in_register(first); }

  __device__ unsigned char* queries(int group) const { return first + group * query_bytes; }
  __device__ unsigned char* keys(int stage) const { return first + ring + stage * 2 * block_bytes; }
  __device__ unsigned char* values(int stage) const { return keys(stage) + block_bytes; }
  __device__ Barrier* barrier(int number) const {
    return reinterpret_cast<Barrier*>(first + barriers) + number;
  }
  /// Barriers of a stage: "full" completes when its copies have arrived, "empty" when it may be overwritten.
  __device__ Barrier* keys_full(int stage) const { return barrier(stage); }
  __device__ Barrier* values_full(int stage) const { return barrier(stages + stage); }
  __device__ Barrier* keys_empty(int stage) const { return barrier(2 * stages + stage); }
  __device__ Barrier* values_empty(int stage) const { return barrier(3 * stages + stage); }
  /// Scratch of is_last_of_tile.
  __device__ int* last() const { return reinterpret_cast<int*>(barrier(4 * stages)); }

  __device__ void init_barriers() const {
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(keys_full(stage), 1);
      init_barrier(values_full(stage), 1);
      init_barrier(keys_empty(stage), Groups * 4);  // a lane of each warp
      init_barrier(values_empty(stage), Groups * 4);
    }
    fence_barrier_init();
  }
};

/// A position in the ring. `round` counts how often the ring was gone through; its parity is the phase of the
/// stage's barriers.
template <int Stages>
struct RingPosition {
  int stage = 0;
  unsigned round = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) stage = 0, ++round;
  }
};

/// The tile that a thread block works on: `rows` rows from `first_row` on, by `heads` query heads from
/// `first_head` on.
struct WideWork {
  const AttentionCall& call;
  const int32_t* pages;  // the sequence's row of page_table
  int64_t first_row, kv_head, first_head;
  int rows, heads;

  __device__ WideWork(const AttentionCall& attention_call, const AttentionItem& item, const TileShape& shape,
                      int head_group)
      : call(attention_call), pages(nullptr), first_row(item.first_row), rows(item.rows) {
    const int groups_per_kv_head = shape.groups_per_kv_head(), group = head_group % groups_per_kv_head;
    kv_head = head_group / groups_per_kv_head;
    first_head = kv_head * shape.heads + int64_t{group} * shape.heads_per_tile;
    const int left = shape.heads - group * shape.heads_per_tile;
    heads = left < shape.heads_per_tile ? left : shape.heads_per_tile;
    pages = call.page_table + call.sequence[first_row] * call.pages_per_sequence;
  }
  __device__ int queries() const { return rows * heads; }
  /// row * query_heads + head, of the call.
  __device__ int64_t index_of(int query) const {
    const int row = query / heads;
    return (first_row + row) * call.query_heads + first_head + (query - row * heads);
  }
};

/// Packs two numbers, rounded to 16 bits each, into a word, `low` in its low half.
__device__ __forceinline__ uint32_t rounded_two(float low, float high, Bf16) {
  return pack_two_bf16(low, high);
}
__device__ __forceinline__ uint32_t rounded_two(float low, float high, Fp16) {
  Fp16 first, second;
  from_float(low, first), from_float(high, second);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
}

/// Copies the queries of a warpgroup to shared memory, rounded to T and multiplied by scale * log2(e), so
/// that weights are powers of two of scores.  Places without a query are not written; their results are not
/// used.
template <class T, int Size>
__device__ __forceinline__ void load_queries(const WideWork& work, int first_query, unsigned char* to) {
  constexpr int eights = Size / 8;
  const int remaining = work.queries() - first_query;
  const int count = (remaining < wide_group_queries ? remaining : wide_group_queries) * eights;
  const float scale = work.call.scale * 1.44269504f;
  constexpr int at_once = 4;
#pragma unroll 1
  for (int begin = threadIdx.x % group_threads; begin < count; begin += at_once * group_threads) {
    float4 low[at_once], high[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int index = begin + j * group_threads, i = index < count ? index : begin;
      const auto* from = reinterpret_cast<const float4*>(
          work.call.q + work.index_of(first_query + i / eights) * Size + i % eights * 8);
      low[j] = from[0], high[j] = from[1];
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int i = begin + j * group_threads, query = i / eights, eight = i % eights;
      if (i >= count) break;
      const uint4 words{rounded_two(low[j].x * scale, low[j].y * scale, T{}),
                        rounded_two(low[j].z * scale, low[j].w * scale, T{}),
                        rounded_two(high[j].x * scale, high[j].y * scale, T{}),
                        rounded_two(high[j].z * scale, high[j].w * scale, T{})};
      *reinterpret_cast<uint4*>(to + eight / 8 * box_bytes + swizzled_offset(query, eight % 8)) = words;
    }
  }
}

/// One of the two queries of which a thread holds scores and sums.
struct OwnQuery {
  int query, row = -1, contiguous = 0x7fffffff, length = 0x7fffffff;

  __device__ OwnQuery(const WideWork& work, const Span* spans, int of_query) : query(of_query) {
    if (query >= work.queries()) return;  // not a query: it attends to all keys, and its result is not used
    row = query / work.heads;
    const Span span = spans[row];
    contiguous = span.contiguous, length = span.length;
  }
  __device__ bool exists() const { return row >= 0; }
  /// Keys of the step that the query attends to.
  __device__ __forceinline__ int count(const KeyStep& step) const {
    const int left = length - step.start, count = left < block_keys ? left : block_keys;
    const bool shares = step.leader_only ? row == step.leader : contiguous - step.start >= count;
    return shares ? count : 0;
  }
};

/// The rows that the queries of a warpgroup belong to.
class GroupRows {
 public:
  __device__ GroupRows(const WideWork& work, const Span* spans, int first_query)
      : first_(first_query / work.heads), longest_(0) {
    const int last = (first_query + wide_group_queries - 1) / work.heads;
    last_ = last < work.rows ? last : work.rows - 1;
    for (int row = first_; row <= last_; ++row)
      if (spans[row].length > longest_) longest_ = spans[row].length;
  }
  /// Whether one of the rows may attend to keys of the step.
  __device__ bool sees(const KeyStep& step) const {
    return step.leader_only ? step.leader >= first_ && step.leader <= last_ : step.start < longest_;
  }

 private:
  int first_, last_, longest_;
};

/// A thread's share of the results of its two queries so far: weighted values (x, in wgmma's accumulator
/// layout), largest scores, and sums of exponentials (sums of weights relative to the largest score).
template <int Size>
struct WideSums {
  float x[Size / 64][8][4];
  float largest[2], exp_sum[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < Size / 64; ++half)
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) x[half][i][j] = 0;
    largest[0] = largest[1] = minus_infinity();
    exp_sum[0] = exp_sum[1] = 0;
  }
};

/// The factors by which a query's result so far and that of a block are multiplied before they are added.
struct Fold {
  float old_scale, new_scale;
  /// Updates `largest` and `exp_sum`.
  __device__ __forceinline__ Fold(float& largest, float& exp_sum, float block_largest, float block_exp_sum) {
    const float new_largest = larger(block_largest, largest);
    old_scale = exp2_approx(largest - new_largest), new_scale = exp2_approx(block_largest - new_largest);
    largest = new_largest;
    exp_sum = of(exp_sum, block_exp_sum);
  }
  /// For a block that the query does not attend to.
  __device__ __forceinline__ Fold() : old_scale(1), new_scale(0) {}
  __device__ __forceinline__ float of(float sum, float more) const {
    return fused_multiply_add(more, new_scale, sum * old_scale);
  }
};

/// Reduces x with `combine` over the four lanes that hold scores of a query; all of them get the result.
template <class Combine>
__device__ __forceinline__ float quad_reduce(float x, const Combine& combine) {
  x = combine(x, __shfl_xor_sync(all_lanes, x, 1));
  return combine(x, __shfl_xor_sync(all_lanes, x, 2));
}

/// Turns the thread's scores of a block into `weights`, rounded to T, and computes `largest` and `exp_sum` of
/// its two queries, which attend to `count` keys of the block. weights[s] is the operand `a` of multiply_add
/// for keys 16 s to 16 s + 15.
template <class T>
__device__ __forceinline__ void weigh(float (&scores)[8][4], const int (&count)[2], uint32_t (&weights)[4][4],
                                      float (&largest)[2], float (&exp_sum)[2]) {
  const int in_group = threadIdx.x % 4;
#pragma unroll
  for (int query = 0; query < 2; ++query) {
    if (count[query] < block_keys) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (8 * i + 2 * in_group + j >= count[query]) scores[i][2 * query + j] = minus_infinity();
    }
    float top = minus_infinity();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) top = larger(scores[i][2 * query + j], top);
    top = quad_reduce(top, [](float a, float b) { return larger(a, b); });
    largest[query] = top;
    if (count[query] <= 0) top = 0;  // all weights are zero
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float low = exp2_approx(scores[i][2 * query] - top),
                  high = exp2_approx(scores[i][2 * query + 1] - top);
      sum += low + high;
      weights[i / 2][i % 2 * 2 + query] = rounded_two(low, high, T{});
    }
    exp_sum[query] = quad_reduce(sum, [](float a, float b) { return a + b; });
  }
}

/// A warpgroup: multiplies its queries with the blocks of the ring.
template <class T, int Size, int Groups>
class WideGroup {
  using Memory = WideSharedMemory<Size, Groups>;
  static constexpr int halves = Memory::halves;

 public:
  WideSums<Size> sums;

  /// `never` is false, which the compiler does not know (keep_operands in kernels/gpu/warpgroup.cuh).
  __device__ WideGroup(const Memory& memory, bool never)
      : memory_(memory),
        never_(never),
        queries_descriptor_(describe_rows(memory.queries(threadIdx.x / group_threads))) {}

  /// Skips the next step of the ring, if no query of the warpgroup attends to it.
  __device__ __forceinline__ void skip() {
    wait_for_phase(memory_.keys_full(position_.stage), position_.round);
    release(memory_.keys_empty(position_.stage));
    wait_for_phase(memory_.values_full(position_.stage), position_.round);
    release(memory_.values_empty(position_.stage));
    position_.next();
  }

  /// Computes the next step of the ring; the thread's two queries attend to `count` of its keys.
  __device__ __forceinline__ void attend(const int (&count)[2]) {
    float largest[2], exp_sum[2];
    uint32_t weights[4][4];
    {
      float scores[8][4];
      score(scores);
      weigh<T>(scores, count, weights, largest, exp_sum);
    }
    const Fold folds[2] = {fold(0, count[0], largest, exp_sum), fold(1, count[1], largest, exp_sum)};
    wait_for_phase(memory_.values_full(position_.stage), position_.round);
    const unsigned char* values = memory_.values(position_.stage);
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      float block[8][4];
      begin_products();
      const uint64_t values_descriptor = describe_rows(values + half * box_bytes);
#pragma unroll
      for (int step = 0; step < 4; ++step)
        begin_multiply_by_box(block, weights[step], values_descriptor, step, step > 0, T{});
      end_product_group();
      wait_for_products<0>();
      if (half == halves - 1) release(memory_.values_empty(position_.stage));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          read_after_wait(block[i][j]);
          sums.x[half][i][j] = folds[j / 2].of(sums.x[half][i][j], block[i][j]);
        }
      }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) keep_operands(weights[step], never_, memory_.first);
    position_.next();
  }

 private:
  /// Computes the block's scores and releases its keys.
  __device__ __forceinline__ void score(float (&scores)[8][4]) {
    wait_for_phase(memory_.keys_full(position_.stage), position_.round);
    const uint64_t keys_descriptor = describe_rows(memory_.keys(position_.stage));
    begin_products();
#pragma unroll
    for (int step = 0; step < Size / 16; ++step)
      begin_multiply_boxes(scores, box_after(queries_descriptor_, step / 4),
                           box_after(keys_descriptor, step / 4), step % 4, step > 0, T{});
    end_product_group();
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) read_after_wait(scores[i][j]);
    release(memory_.keys_empty(position_.stage));
  }

  __device__ __forceinline__ Fold fold(int query, int count, const float (&largest)[2],
                                       const float (&exp_sum)[2]) {
    if (count <= 0) return Fold();
    return Fold(sums.largest[query], sums.exp_sum[query], largest[query], exp_sum[query]);
  }

  __device__ __forceinline__ void release(Barrier* barrier) const {
    __syncwarp();
    if (threadIdx.x % warp_size == 0) arrive(barrier);
  }

  const Memory& memory_;
  const bool never_;
  const uint64_t queries_descriptor_;
  RingPosition<Memory::stages> position_;
};

}  // namespace
}  // namespace clover::kernels::cuda
