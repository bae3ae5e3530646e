#pragma once

#include "kernels/gpu/warpgroup.cuh"
#include "kernels/linear/linear_tile.cuh"

// The ring of stages in the shared memory of a cluster's block (linear_clusters.cuh): the thread that fills
// it and the warps that multiply what is in it.
namespace clover::kernels::cuda {
namespace {

/// A block's shared memory: the ring, over which the sums are written once it has been read, and its
/// barriers.
template <int Tiles>
struct ClusterRoom {
  static constexpr int panel_words = ClusterPlan::stage_chunks * chunk_words,
                       weight_bytes = ClusterPlan::panels * panel_words * 4,
                       row_bytes = 8 * Tiles * swizzled_row_bytes;
  static constexpr int stage_bytes = ClusterPlan::stage_bytes(8 * Tiles);
  static_assert(stage_bytes == weight_bytes + row_bytes && stage_bytes % swizzled_alignment == 0);

  unsigned char* first;
  int stages;
  __device__ explicit ClusterRoom(int of_stages) : first(aligned_shared_memory()), stages(of_stages) {
    keep_shared(first);
  }

  __device__ uint32_t* weights(int stage) const {
    return reinterpret_cast<uint32_t*>(first + stage * stage_bytes);
  }
  __device__ unsigned char* inputs(int stage) const { return first + stage * stage_bytes + weight_bytes; }
  __device__ float4* sums() const { return reinterpret_cast<float4*>(first); }
  /// Barriers of a stage: full when its copies have arrived, empty when it may be written again.
  __device__ Barrier* full(int stage) const {
    return reinterpret_cast<Barrier*>(first + stages * stage_bytes) + stage;
  }
  __device__ Barrier* empty(int stage) const { return full(stages + stage); }

  __device__ void init_barriers() const {
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(full(stage), 1);
      init_barrier(empty(stage), ClusterPlan::panels);
    }
    show_barriers();
  }
};

/// A position in the ring: its stage and phase.
struct Turn {
  int stage = 0;
  unsigned round = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++stage == stages) stage = 0, ++round;
  }
};

/// A block's segment of k: two chunks a stage, the last one maybe one.
struct Segment {
  int begin, chunks;
  __device__ Segment(const KCut& cut, int segment)
      : begin(static_cast<int>(cut.begin(segment))),
        chunks(static_cast<int>(cut.begin(segment + 1)) - begin) {}
  __device__ int stages() const { return (chunks + 1) / 2; }
};

/// A tile of outputs by rows; clusters take them in turn, those of the same outputs side by side.
struct ClusterTile {
  int64_t first_panel;
  int first_row;
  __device__ ClusterTile(int number, int row_tiles, int rows)
      : first_panel(static_cast<int64_t>(number / row_tiles) * ClusterPlan::panels),
        first_row(number % row_tiles * rows) {}
};

/// The producer thread, which issues the copies of a tile's panels and rows, stage by stage; what lies beyond
/// the last of them is zeros.
template <int Tiles>
class ClusterCopies {
 public:
  __device__ ClusterCopies(const Segment& segment, const ClusterRoom<Tiles>& room, const TensorMap& weights,
                           const TensorMap& rows)
      : segment_(segment), room_(room), weights_(weights), rows_(rows), policy_(read_once()) {}

  /// Begins the first tile: as many weights as fit are copied before the kernel ahead has ended.
  __device__ void begin_first(const ClusterTile& tile) const {
    const int early = at_once();
#pragma unroll 1
    for (int stage = 0; stage < early; ++stage) copy_weights(tile, stage, stage);
    wait_for_prior_kernel();
#pragma unroll 1
    for (int stage = 0; stage < early; ++stage) copy_rows(tile, stage, stage);
  }
  /// Begins the next tile, once the ring is empty; its first stage goes to place `to`.
  __device__ void begin(const ClusterTile& tile, int to) const {
    const int early = at_once();
#pragma unroll 1
    for (int stage = 0; stage < early; ++stage) {
      copy_weights(tile, stage, to), copy_rows(tile, stage, to);
      if (++to == room_.stages) to = 0;
    }
  }
  /// Refills stage `before` of the tile, which all warps are about to release.
  __device__ __forceinline__ void follow(const ClusterTile& tile, int before, const Turn& turn) const {
    const int stage = before + room_.stages;
    if (stage >= segment_.stages()) return;
    wait_for_phase(room_.empty(turn.stage), turn.round);
    copy_weights(tile, stage, turn.stage);
    copy_rows(tile, stage, turn.stage);
  }

 private:
  __device__ int at_once() const {
    return segment_.stages() < room_.stages ? segment_.stages() : room_.stages;
  }
  __device__ __forceinline__ void copy_weights(const ClusterTile& tile, int stage, int to) const {
    constexpr int numbers = chunk_words / 2;  // of 8 bytes, in a chunk
    arrive_and_expect(room_.full(to), ClusterRoom<Tiles>::stage_bytes);
    copy_box_once(room_.weights(to), weights_, (segment_.begin + 2 * stage) * numbers,
                  static_cast<int>(tile.first_panel), room_.full(to), policy_);
  }
  __device__ __forceinline__ void copy_rows(const ClusterTile& tile, int stage, int to) const {
    copy_box(room_.inputs(to), rows_, (segment_.begin + 2 * stage) * 32, tile.first_row, room_.full(to));
  }

  const Segment& segment_;
  const ClusterRoom<Tiles>& room_;
  const TensorMap &weights_, &rows_;
  const uint64_t policy_;
};

/// The consumer warps: tensor cores always have one group of steps to multiply while the weights of the next
/// group are read.
template <class T, int Tiles>
class ClusterProducts {
  // Registers are short where there are many sums.
  static constexpr int steps = Tiles <= 8 ? 2 : 1, groups_a_chunk = 2 / steps;
  using Weights = uint32_t[steps][4];

 public:
  __device__ ClusterProducts(const Segment& segment, const ClusterRoom<Tiles>& room,
                             const ClusterCopies<Tiles>& copies)
      : segment_(segment), room_(room), copies_(copies) {
    const Lane lane;
    // Pairs t and t + 4 of outputs 2g and 2g + 1.
    own_ = lane.warp * ClusterRoom<Tiles>::panel_words + lane.in_group * panel_outputs + 2 * lane.group;
  }

  /// Where the ring has the next tile's first stage.
  __device__ int place() const { return turn_.stage; }

  /// Sums of the warp's panel, one chain.
  __device__ __forceinline__ void sum_segment(const ClusterTile& tile, float (&sum)[Tiles][4]) {
    Weights even = {}, odd = {};
    const int whole = segment_.chunks / 2;
    Turn last = turn_;
#pragma unroll 1
    for (int stage = 0; stage < whole; ++stage) {
      wait_for_phase(room_.full(turn_.stage), turn_.round);
      const uint32_t* weights = room_.weights(turn_.stage) + own_;
      const uint64_t rows = describe_rows(room_.inputs(turn_.stage));
      begin_group(even, odd, weights, rows, 0, sum);
      if (stage > 0) release(last);
      if (stage > 0 && threadIdx.x == 0) copies_.follow(tile, stage - 1, last);
      last = turn_;
#pragma unroll
      for (int group = 1; group < 2 * groups_a_chunk; group += 2) {
        begin_group(odd, even, weights, rows, group, sum);
        if (group + 1 < 2 * groups_a_chunk) begin_group(even, odd, weights, rows, group + 1, sum);
      }
      turn_.next(room_.stages);
    }
    wait_for_products<0>();
    hold_all(odd);
    if (whole > 0) release(last);
    if (2 * whole < segment_.chunks) last_chunk(even, odd, sum);
#pragma unroll
    for (int i = 0; i < 4 * Tiles; ++i) read_behind_wait(sum[i / 4][i % 4]);
  }

 private:
  /// Begins the products of a group of steps of a stage, whose weights `a` will hold, and waits for the group
  /// before.
  __device__ __forceinline__ void begin_group(Weights& a, const Weights& before, const uint32_t* weights,
                                              uint64_t rows, int group, float (&sum)[Tiles][4]) const {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const uint32_t* from = weights + (group * steps + step) * step_words;
      read_left(from, from + step_words / 2, a[step]);
    }
    begin_products();
#pragma unroll
    for (int step = 0; step < steps; ++step) begin_multiply(sum, a[step], rows, group * steps + step, T{});
    end_product_group();
    wait_for_products<1>();
    hold_all(before);
  }
  __device__ __forceinline__ void hold_all(const Weights& a) const {
#pragma unroll
    for (int step = 0; step < steps; ++step) hold(a[step], /*never=*/segment_.chunks < 0, room_.first);
  }
  __device__ __forceinline__ void last_chunk(Weights& even, Weights& odd, float (&sum)[Tiles][4]) {
    wait_for_phase(room_.full(turn_.stage), turn_.round);
    const uint32_t* weights = room_.weights(turn_.stage) + own_;
    const uint64_t rows = describe_rows(room_.inputs(turn_.stage));
    begin_group(even, odd, weights, rows, 0, sum);
    if (groups_a_chunk == 2) begin_group(odd, even, weights, rows, 1, sum);
    wait_for_products<0>();
    hold_all(even), hold_all(odd);
    release(turn_);
    turn_.next(room_.stages);
  }
  __device__ __forceinline__ void release(const Turn& turn) const {
    if (threadIdx.x % warp_size == 0) arrive(room_.empty(turn.stage));
  }

  const Segment& segment_;
  const ClusterRoom<Tiles>& room_;
  const ClusterCopies<Tiles>& copies_;
  int own_;
  Turn turn_;
};

}  // namespace
}  // namespace clover::kernels::cuda
