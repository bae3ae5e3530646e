#pragma once

#include "kernels/attention/attention_blocks.cuh"

// A warpgroup computes scores, weights and weighted values of 64 queries by wgmma, one block of 64 keys after
// the other. A block's result is relative to its own largest score and folds into the sum of those before it,
// so that a row gets the same bits whatever other rows are in the tile.
namespace clover::kernels::cuda {
namespace {

constexpr int group_threads = 4 * warp_size;
constexpr int box_bytes = block_keys * swizzled_row_bytes;

/// Shared memory of a block of threads: queries, a ring of blocks of keys and values, and its barriers.
template <int Size, int Groups>
struct WideRoom {
  static constexpr int halves = Size / 64, block_bytes = halves * box_bytes;
  static constexpr int query_bytes = block_bytes;  // of a group
  static constexpr int threads = (Groups + 1) * group_threads, blocks_a_multiprocessor = 2 / Groups;
  static constexpr int copying_registers = Groups == 1 ? 40 : 24,
                       multiplying_registers = Groups == 1 ? 216 : 240;
  static constexpr int behind = 512;  // for barriers
  static constexpr int stages =
      ((228 << 10) / blocks_a_multiprocessor - (1 << 10) - behind - Groups * query_bytes) / (2 * block_bytes);
  static constexpr int ring = Groups * query_bytes, barriers = ring + stages * 2 * block_bytes;
  static constexpr int64_t bytes = barriers + (4 * stages + 1) * sizeof(Barrier);
  static_assert(stages >= 2 && (4 * stages + 1) * 8 <= behind);

  unsigned char* first = aligned_shared_memory();
  __device__ WideRoom() { keep_shared(first); }

  __device__ unsigned char* queries(int group) const { return first + group * query_bytes; }
  __device__ unsigned char* keys(int stage) const { return first + ring + stage * 2 * block_bytes; }
  __device__ unsigned char* values(int stage) const { return keys(stage) + block_bytes; }
  __device__ Barrier* barrier(int number) const {
    return reinterpret_cast<Barrier*>(first + barriers) + number;
  }
  /// Barriers of a stage: full when its copies have arrived, empty when it may be written again.
  __device__ Barrier* keys_full(int stage) const { return barrier(stage); }
  __device__ Barrier* values_full(int stage) const { return barrier(stages + stage); }
  __device__ Barrier* keys_empty(int stage) const { return barrier(2 * stages + stage); }
  __device__ Barrier* values_empty(int stage) const { return barrier(3 * stages + stage); }
  __device__ int* last() const { return reinterpret_cast<int*>(barrier(4 * stages)); }

  __device__ void init_barriers() const {
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(keys_full(stage), 1);
      init_barrier(values_full(stage), 1);
      init_barrier(keys_empty(stage), Groups * 4);  // a lane of each warp
      init_barrier(values_empty(stage), Groups * 4);
    }
    show_barriers();
  }
};

/// A position in a ring: its stage and phase.
template <int Stages>
struct RingTurn {
  int stage = 0;
  unsigned round = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Stages) stage = 0, ++round;
  }
};

/// What a block of threads works on: `rows` rows from `first_row` by `heads` heads from `first_head`.
struct WideWork {
  const AttentionCall& call;
  const int32_t* pages;
  int64_t first_row, kv_head, first_head;
  int rows, heads;

  __device__ WideWork(const AttentionCall& of, const AttentionItem& item, const TileShape& shape, int in_item)
      : call(of), pages(nullptr), first_row(item.first_row), rows(item.rows) {
    const int head_parts = shape.head_parts(), part = in_item % head_parts;
    kv_head = in_item / head_parts;
    first_head = kv_head * shape.heads + int64_t{part} * shape.heads_here;
    const int left = shape.heads - part * shape.heads_here;
    heads = left < shape.heads_here ? left : shape.heads_here;
    pages = call.page_table + call.sequence[first_row] * call.pages_per_sequence;
  }
  __device__ int queries() const { return rows * heads; }
  /// Index among all rows' query heads.
  __device__ int64_t index_of(int query) const {
    const int row = query / heads;
    return (first_row + row) * call.query_heads + first_head + (query - row * heads);
  }
};

/// Two numbers rounded to 16 bits each.
__device__ __forceinline__ uint32_t rounded_two(float low, float high, Bf16) {
  return two_bf16(low, high);
}
__device__ __forceinline__ uint32_t rounded_two(float low, float high, Fp16) {
  Fp16 first, second;
  from_float(low, first), from_float(high, second);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
}

/// A group's queries times the scale, for scores to be exponents of two, rounded.  What lies where there is
/// none is never looked at.
template <class T, int Size>
__device__ __forceinline__ void load_queries(const WideWork& work, int first_query, unsigned char* to) {
  constexpr int eights = Size / 8;
  const int there = work.queries() - first_query;
  const int count = (there < wide_group_queries ? there : wide_group_queries) * eights;
  const float scale = work.call.scale * 1.44269504f;
  constexpr int at_once = 4;
#pragma unroll 1
  for (int begin = threadIdx.x % group_threads; begin < count; begin += at_once * group_threads) {
    float4 low[at_once], high[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int wanted = begin + j * group_threads, i = wanted < count ? wanted : begin;
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
      *reinterpret_cast<uint4*>(to + eight / 8 * box_bytes + swizzled_place(query, eight % 8)) = words;
    }
  }
}

/// One of the two queries whose sums a thread holds.
struct OwnQuery {
  int query, row = -1, contiguous = 0x7fffffff, length = 0x7fffffff;

  __device__ OwnQuery(const WideWork& work, const Span* spans, int of_query) : query(of_query) {
    if (query >= work.queries()) return;  // sees all that others see, and nobody looks at what it gets
    row = query / work.heads;
    const Span span = spans[row];
    contiguous = span.contiguous, length = span.length;
  }
  __device__ bool exists() const { return row >= 0; }
  /// Keys of the step that it sees.
  __device__ __forceinline__ int count(const KeyStep& step) const {
    const int left = length - step.start, count = left < block_keys ? left : block_keys;
    const bool shares = step.alone ? row == step.leader : contiguous - step.start >= count;
    return shares ? count : 0;
  }
};

/// The rows of a group's queries.
class GroupRows {
 public:
  __device__ GroupRows(const WideWork& work, const Span* spans, int first_query)
      : first_(first_query / work.heads), longest_(0) {
    const int last = (first_query + wide_group_queries - 1) / work.heads;
    last_ = last < work.rows ? last : work.rows - 1;
    for (int row = first_; row <= last_; ++row)
      if (spans[row].length > longest_) longest_ = spans[row].length;
  }
  /// Whether one of them may see keys of the step.
  __device__ bool sees(const KeyStep& step) const {
    return step.alone ? step.leader >= first_ && step.leader <= last_ : step.start < longest_;
  }

 private:
  int first_, last_, longest_;
};

/// Results of a thread's two queries so far: weighted values, largest scores and masses.
template <int Size>
struct WideSums {
  float x[Size / 64][8][4];
  float largest[2], mass[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < Size / 64; ++half)
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) x[half][i][j] = 0;
    largest[0] = largest[1] = minus_infinity();
    mass[0] = mass[1] = 0;
  }
};

/// The factors by which a query's result so far and a block's are scaled before they are added.
struct Fold {
  float shrink, grow;
  /// Moves `largest` and `mass`.
  __device__ __forceinline__ Fold(float& largest, float& mass, float block_largest, float block_mass) {
    const float now = larger(block_largest, largest);
    shrink = exp_two(largest - now), grow = exp_two(block_largest - now);
    largest = now;
    mass = of(mass, block_mass);
  }
  /// Of a block that is not the query's.
  __device__ __forceinline__ Fold() : shrink(1), grow(0) {}
  __device__ __forceinline__ float of(float sum, float more) const {
    return multiply_and_add(more, grow, sum * shrink);
  }
};

/// All four lanes that have scores of a query get their largest score, or sum.
template <class Two>
__device__ __forceinline__ float of_quad(float x, const Two& two) {
  x = two(x, __shfl_xor_sync(all_lanes, x, 1));
  return two(x, __shfl_xor_sync(all_lanes, x, 2));
}

/// The thread's scores become weights, rounded; `largest` and `mass`: of its two queries, which see `count`
/// keys.
template <class T>
__device__ __forceinline__ void weigh(float (&scores)[8][4], const int (&count)[2], uint32_t (&weights)[4][4],
                                      float (&largest)[2], float (&mass)[2]) {
  const int in_group = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (count[half] < block_keys) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (8 * i + 2 * in_group + j >= count[half]) scores[i][2 * half + j] = minus_infinity();
    }
    float top = minus_infinity();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) top = larger(scores[i][2 * half + j], top);
    top = of_quad(top, [](float a, float b) { return larger(a, b); });
    largest[half] = top;
    if (count[half] <= 0) top = 0;  // all weights are zero
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float low = exp_two(scores[i][2 * half] - top), high = exp_two(scores[i][2 * half + 1] - top);
      sum += low + high;
      weights[i / 2][i % 2 * 2 + half] = rounded_two(low, high, T{});
    }
    mass[half] = of_quad(sum, [](float a, float b) { return a + b; });
  }
}

/// A warpgroup's work: its queries against the blocks of the ring.
template <class T, int Size, int Groups>
class WideGroup {
  using Room = WideRoom<Size, Groups>;
  static constexpr int halves = Room::halves;

 public:
  WideSums<Size> sums;

  __device__ WideGroup(const Room& room, bool never)
      : room_(room), never_(never), queries_(describe_rows(room.queries(threadIdx.x / group_threads))) {}

  /// Skips the next step of the ring, of which no query of the group has a key.
  __device__ __forceinline__ void pass() {
    wait_for_phase(room_.keys_full(turn_.stage), turn_.round);
    release(room_.keys_empty(turn_.stage));
    wait_for_phase(room_.values_full(turn_.stage), turn_.round);
    release(room_.values_empty(turn_.stage));
    turn_.next();
  }

  /// Takes the next step of the ring, of which the thread's two queries have `count` keys.
  __device__ __forceinline__ void attend(const int (&count)[2]) {
    float largest[2], mass[2];
    uint32_t weights[4][4];
    {
      float scores[8][4];
      score(scores);
      weigh<T>(scores, count, weights, largest, mass);
    }
    const Fold folds[2] = {fold(0, count[0], largest, mass), fold(1, count[1], largest, mass)};
    wait_for_phase(room_.values_full(turn_.stage), turn_.round);
    const unsigned char* values = room_.values(turn_.stage);
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      float block[8][4];
      begin_products();
      const uint64_t box = describe_rows(values + half * box_bytes);
#pragma unroll
      for (int step = 0; step < 4; ++step)
        begin_multiply_down(block, weights[step], box, step, step > 0, T{});
      end_product_group();
      wait_for_products<0>();
      if (half == halves - 1) release(room_.values_empty(turn_.stage));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          read_behind_wait(block[i][j]);
          sums.x[half][i][j] = folds[j / 2].of(sums.x[half][i][j], block[i][j]);
        }
      }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) hold(weights[step], never_, room_.first);
    turn_.next();
  }

 private:
  /// The block's scores; its keys may then be overwritten.
  __device__ __forceinline__ void score(float (&scores)[8][4]) {
    wait_for_phase(room_.keys_full(turn_.stage), turn_.round);
    const uint64_t keys = describe_rows(room_.keys(turn_.stage));
    begin_products();
#pragma unroll
    for (int step = 0; step < Size / 16; ++step)
      begin_multiply_boxes(scores, box_behind(queries_, step / 4), box_behind(keys, step / 4), step % 4,
                           step > 0, T{});
    end_product_group();
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) read_behind_wait(scores[i][j]);
    release(room_.keys_empty(turn_.stage));
  }

  __device__ __forceinline__ Fold fold(int half, int count, const float (&largest)[2],
                                       const float (&mass)[2]) {
    if (count <= 0) return Fold();
    return Fold(sums.largest[half], sums.mass[half], largest[half], mass[half]);
  }

  __device__ __forceinline__ void release(Barrier* barrier) const {
    __syncwarp();
    if (threadIdx.x % warp_size == 0) arrive(barrier);
  }

  const Room& room_;
  const bool never_;
  const uint64_t queries_;
  RingTurn<Room::stages> turn_;
};

}  // namespace
}  // namespace clover::kernels::cuda
