#pragma once

#include "kernels/gpu/warpgroup.cuh"
#include "kernels/linear/linear_tile.cuh"

// Kernel `clusters`: the ring of stages in the shared memory of a thread block (linear_clusters.cuh), the
// producer thread that fills it and the consumer warps that multiply its stages. A thread block computes 8
// panels of 16 outputs, one for each warp, by `Tiles` tiles of 8 rows, over one of the four segments of k
// (KCut in linear_plan.h). A segment is cut into k blocks of 64 inputs, or two chunks; the last k block may
// have one chunk. A stage holds one k block. A chunk is two steps of 16 inputs, as wgmma multiplies them. A
// 32-bit word of weights is a pair of inputs of one output.
namespace clover::kernels::cuda {
namespace {

/// A thread block's shared memory: the ring, then its barriers. Once the ring has been read, the block's sums
/// are written over it. A stage has weights [8 panels, stage_chunks (2) chunks], then x [8 * Tiles rows, 64
/// inputs] as a swizzled box (kernels/gpu/async_copies.cuh).
template <int Tiles>
struct ClusterSharedMemory {
  // Of a stage: 32-bit words of a panel's weights, bytes of all weights, and bytes of x.
  static constexpr int panel_words = ClusterPlan::stage_chunks * chunk_words,
                       weight_bytes = ClusterPlan::panels * panel_words * 4,
                       input_bytes = 8 * Tiles * swizzled_row_bytes;
  static constexpr int stage_bytes = ClusterPlan::stage_bytes(8 * Tiles);
  static_assert(stage_bytes == weight_bytes + input_bytes && stage_bytes % swizzled_alignment == 0);

  unsigned char* first;
  int stages;
  __device__ explicit ClusterSharedMemory(int stage_count)
      : first(aligned_shared_memory()), stages(stage_count) {
    keep_shared_address_in_register(first);
  }

  __device__ uint32_t* weights(int stage) const {
    return reinterpret_cast<uint32_t*>(first + stage * stage_bytes);
  }
  __device__ unsigned char* inputs(int stage) const { return first + stage * stage_bytes + weight_bytes; }
  __device__ float4* sums() const { return reinterpret_cast<float4*>(first); }
  /// Barriers of a stage: "full" completes when its copies have arrived, "empty" when it may be overwritten.
  __device__ Barrier* full(int stage) const {
    return reinterpret_cast<Barrier*>(first + stages * stage_bytes) + stage;
  }
  __device__ Barrier* empty(int stage) const { return full(stages + stage); }

  __device__ void init_barriers() const {
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(full(stage), 1);                     // arrivals: the producer thread
      init_barrier(empty(stage), ClusterPlan::panels);  // a lane of each warp; each warp has one panel
    }
    fence_barrier_init();
  }
};

/// A position in the ring. `round` counts how often the ring was gone through; its parity is the phase of the
/// stage's barriers.
struct ClusterRingPosition {
  int stage = 0;
  unsigned round = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++stage == stages) stage = 0, ++round;
  }
};

/// A thread block's segment of k: its first chunk and how many it has.
struct Segment {
  int begin, chunks;
  __device__ Segment(const KCut& cut, int segment)
      : begin(static_cast<int>(cut.begin(segment))),
        chunks(static_cast<int>(cut.begin(segment + 1)) - begin) {}
  __device__ int k_blocks() const { return (chunks + 1) / 2; }
};

/// What a cluster computes at a time: 128 outputs by `rows` rows. Clusters take cluster tiles in turn, in the
/// order of their numbers: all rows of the same outputs first. `row_tiles`: cluster tiles with the same
/// outputs.
struct ClusterTile {
  int64_t first_panel;
  int first_row;
  __device__ ClusterTile(int number, int row_tiles, int rows)
      : first_panel(static_cast<int64_t>(number / row_tiles) * ClusterPlan::panels),
        first_row(number % row_tiles * rows) {}
};

/// The producer thread: issues the copies of a cluster tile's panels and rows, one k block after the other.
/// Panels, rows and inputs beyond the last are zeros.
template <int Tiles>
class ClusterCopies {
 public:
  __device__ ClusterCopies(const Segment& segment, const ClusterSharedMemory<Tiles>& memory,
                           const TensorMap& weights, const TensorMap& rows)
      : segment_(segment), memory_(memory), weights_(weights), rows_(rows), policy_(evict_first_policy()) {}

  /// Begins the first tile: the weights that fit in the ring are copied before the previous kernel has ended.
  __device__ void begin_first(const ClusterTile& tile) const {
    const int count = initial_k_blocks();
#pragma unroll 1
    for (int i = 0; i < count; ++i) copy_weights(tile, i, i);
    wait_for_prior_kernel();
#pragma unroll 1
    for (int i = 0; i < count; ++i) copy_rows(tile, i, i);
  }
  /// Begins the next tile, once the ring is empty; its first k block goes to stage `stage`.
  __device__ void begin(const ClusterTile& tile, int stage) const {
    const int count = initial_k_blocks();
#pragma unroll 1
    for (int k_block = 0; k_block < count; ++k_block) {
      copy_weights(tile, k_block, stage), copy_rows(tile, k_block, stage);
      if (++stage == memory_.stages) stage = 0;
    }
  }
  /// Refills the stage at `position`, which held k block `old_k_block` of the tile, as soon as all warps have
  /// released it.
  __device__ __forceinline__ void refill(const ClusterTile& tile, int old_k_block,
                                         const ClusterRingPosition& position) const {
    const int k_block = old_k_block + memory_.stages;
    if (k_block >= segment_.k_blocks()) return;
    wait_for_phase(memory_.empty(position.stage), position.round);
    copy_weights(tile, k_block, position.stage);
    copy_rows(tile, k_block, position.stage);
  }

 private:
  /// How many k blocks are copied when a tile begins.
  __device__ int initial_k_blocks() const {
    return segment_.k_blocks() < memory_.stages ? segment_.k_blocks() : memory_.stages;
  }
  __device__ __forceinline__ void copy_weights(const ClusterTile& tile, int k_block, int stage) const {
    constexpr int chunk_columns = chunk_words / 2;  // columns of the tensor map, 8 bytes each
    arrive_and_expect(memory_.full(stage), ClusterSharedMemory<Tiles>::stage_bytes);
    copy_box_with_policy(memory_.weights(stage), weights_, (segment_.begin + 2 * k_block) * chunk_columns,
                         static_cast<int>(tile.first_panel), memory_.full(stage), policy_);
  }
  __device__ __forceinline__ void copy_rows(const ClusterTile& tile, int k_block, int stage) const {
    copy_box(memory_.inputs(stage), rows_, (segment_.begin + 2 * k_block) * 32, tile.first_row,
             memory_.full(stage));
  }

  const Segment& segment_;
  const ClusterSharedMemory<Tiles>& memory_;
  const TensorMap &weights_, &rows_;
  const uint64_t policy_;
};

/// The consumer warps. They read the weights of the next group of steps from shared memory to registers while
/// tensor cores multiply the present group.
template <class T, int Tiles>
class ClusterProducts {
  // Steps of 16 inputs in a group; with many sums the registers suffice for only one.
  static constexpr int steps = Tiles <= 8 ? 2 : 1, groups_per_chunk = 2 / steps;
  using Weights = uint32_t[steps][4];  // this lane's share of the weights of a group

 public:
  __device__ ClusterProducts(const Segment& segment, const ClusterSharedMemory<Tiles>& memory,
                             const ClusterCopies<Tiles>& copies)
      : segment_(segment), memory_(memory), copies_(copies) {
    const Lane lane;  // 4 * group + in_group (linear_tile.cuh)
    // In each step the lane reads two words (outputs 2 * group and 2 * group + 1 of the warp's panel) of
    // input pair in_group, from first_word_ on, and two of input pair in_group + 4.
    first_word_ =
        lane.warp * ClusterSharedMemory<Tiles>::panel_words + lane.in_group * panel_outputs + 2 * lane.group;
  }

  /// The stage that the first k block of the next tile goes to.
  __device__ int next_stage() const { return position_.stage; }

  /// Computes the sums of the warp's panel over the segment, as one chain of products. The weights of groups
  /// with even numbers are in `even`, those of the others in `odd`.
  __device__ __forceinline__ void sum_segment(const ClusterTile& tile, float (&sum)[Tiles][4]) {
    Weights even = {}, odd = {};
    const int full_k_blocks = segment_.chunks / 2;
    ClusterRingPosition last = position_;  // of the k block before
#pragma unroll 1
    for (int k_block = 0; k_block < full_k_blocks; ++k_block) {
      wait_for_phase(memory_.full(position_.stage), position_.round);
      const uint32_t* weights = memory_.weights(position_.stage) + first_word_;
      const uint64_t rows_descriptor = describe_rows(memory_.inputs(position_.stage));
      begin_step_group(even, odd, weights, rows_descriptor, 0, sum);
      if (k_block > 0) release(last);
      if (k_block > 0 && threadIdx.x == 0) copies_.refill(tile, k_block - 1, last);
      last = position_;
#pragma unroll
      for (int step_group = 1; step_group < 2 * groups_per_chunk; step_group += 2) {
        begin_step_group(odd, even, weights, rows_descriptor, step_group, sum);
        if (step_group + 1 < 2 * groups_per_chunk)
          begin_step_group(even, odd, weights, rows_descriptor, step_group + 1, sum);
      }
      position_.next(memory_.stages);
    }
    wait_for_products<0>();
    keep_until_here(odd);
    if (full_k_blocks > 0) release(last);
    if (2 * full_k_blocks < segment_.chunks) last_chunk(even, odd, sum);
#pragma unroll
    for (int i = 0; i < 4 * Tiles; ++i) read_after_wait(sum[i / 4][i % 4]);
  }

 private:
  /// Reads the weights of a stage's group of steps number `step_group` into `a` and begins their products
  /// with the rows of x (rows_descriptor: describe_rows of the stage's inputs); then waits for the products
  /// of the group before, whose weights are `before`.
  __device__ __forceinline__ void begin_step_group(Weights& a, const Weights& before, const uint32_t* weights,
                                                   uint64_t rows_descriptor, int step_group,
                                                   float (&sum)[Tiles][4]) const {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const uint32_t* from = weights + (step_group * steps + step) * step_words;
      read_left_operand(from, from + step_words / 2, a[step]);
    }
    begin_products();
#pragma unroll
    for (int step = 0; step < steps; ++step)
      begin_multiply(sum, a[step], rows_descriptor, step_group * steps + step, T{});
    end_product_group();
    wait_for_products<1>();
    keep_until_here(before);
  }
  /// Keeps weights in their registers until here: tensor cores have read these until their products were
  /// complete, which compilers do not know (keep_operands in kernels/gpu/warpgroup.cuh).
  __device__ __forceinline__ void keep_until_here(const Weights& a) const {
    // No segment has fewer than 0 chunks, but the compiler does not know that.
#pragma unroll
    for (int step = 0; step < steps; ++step)
      keep_operands(a[step], /*never=*/segment_.chunks < 0, memory_.first);
  }
  /// Adds the products of the last k block, if it has only one chunk.
  __device__ __forceinline__ void last_chunk(Weights& even, Weights& odd, float (&sum)[Tiles][4]) {
    wait_for_phase(memory_.full(position_.stage), position_.round);
    const uint32_t* weights = memory_.weights(position_.stage) + first_word_;
    const uint64_t rows_descriptor = describe_rows(memory_.inputs(position_.stage));
    begin_step_group(even, odd, weights, rows_descriptor, 0, sum);
    if (groups_per_chunk == 2) begin_step_group(odd, even, weights, rows_descriptor, 1, sum);
    wait_for_products<0>();
    keep_until_here(even), keep_until_here(odd);
    release(position_);
    position_.next(memory_.stages);
  }
  /// Says that this warp has read the stage at `position`.
  __device__ __forceinline__ void release(const ClusterRingPosition& position) const {
    if (threadIdx.x % warp_size == 0) arrive(memory_.empty(position.stage));
  }

  const Segment& segment_;
  const ClusterSharedMemory<Tiles>& memory_;
  const ClusterCopies<Tiles>& copies_;
  int first_word_;
  ClusterRingPosition position_;
};

}  // namespace
}  // namespace clover::kernels::cuda
