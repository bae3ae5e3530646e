#pragma once

#include "kernels/linear/linear_rows.cuh"
#include "kernels/linear/linear_tile.cuh"

namespace clover::kernels::cuda {
namespace {

// Kernel `few`: products of few rows, which are bound by reading weights. A thread block computes one panel
// of 16 outputs by `Tiles` tiles of 8 rows; its four warps have one of the four segments of k each (KCut in
// linear_plan.h). A warp copies its segment of the panel through its own ring in shared memory, a step (16
// inputs, 512 consecutive bytes) at a time, so that loads are always in flight, even before the previous
// kernel has ended. A batch is batch_steps steps.
constexpr int batch_steps = 4;

/// Where piece number `piece` (16 bytes) of a step is in the step's place of the ring; the order puts the
/// pieces that lanes read at once into different banks.
CLOVER_HOST_DEVICE int ring_place(int piece) {
  return piece ^ (piece >> 3) << 1;
}

/// A warp's ring of weights: steps of a panel, in batches.
template <int RingSteps>
class WeightRing {
 public:
  static constexpr int batches = RingSteps / batch_steps;
  static constexpr int64_t bytes_per_warp = int64_t{RingSteps} * step_words * 4;

  /// `panel`: its words; `begin`: the first step of the warp's segment; `steps`: how many steps it has.
  __device__ WeightRing(const Lane& lane, const uint32_t* panel, int begin, int steps) : steps_(steps) {
    const int lane_number = threadIdx.x % warp_size;
    uint32_t* ring = shared_memory<uint32_t>() + lane.warp * RingSteps * step_words;
    from_ = panel + int64_t{begin} * step_words + 4 * lane_number;
    to_ = ring + 4 * ring_place(lane_number);
    // The lane multiplies input pairs 2 * in_group (`low_`) and 2 * in_group + 1 (`high_`) of outputs 2 *
    // group and 2 * group + 1: two words, `within` words after the start of a piece of four.
    const int within = lane.group % 2 * 2, first = 8 * lane.in_group + lane.group / 2;
    low_ = ring + 4 * ring_place(first) + within;
    high_ = ring + 4 * ring_place(first + 4) + within;
    keep_global_address_in_register(from_);
    keep_shared_address_in_register(to_);
    keep_shared_address_in_register(low_);
    keep_shared_address_in_register(high_);
  }

  /// Begins to copy the batch that starts at step `first`, as one copy group, which may be empty.
  __device__ __forceinline__ void fetch(int first) const {
    const uint32_t* from = from_ + first * step_words;
    uint32_t* to = to_ + ring_offset_of(first);
    const auto copy = [&](int i) { copy_async(to + i * step_words, from + i * step_words, false); };
    if (first + batch_steps <= steps_) {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i) copy(i);
    } else {
      for (int i = 0; i < steps_ - first; ++i) copy(i);
    }
    end_copy_group();
  }

  /// Waits for the batch that starts at step `first`, the oldest in flight, and reads its weights, the left
  /// operands of multiply_add.
  __device__ __forceinline__ void read(int first, uint32_t (&a)[batch_steps][4]) const {
    wait_for_copies<batches - 1>();
    __syncwarp();  // the copies of all lanes have arrived
    const int ring_offset = ring_offset_of(first);
#pragma unroll
    for (int i = 0; i < batch_steps; ++i)
      read_left_operand(low_ + ring_offset + i * step_words, high_ + ring_offset + i * step_words, a[i]);
  }

 private:
  /// Offset of a step in the ring, in words.
  __device__ static int ring_offset_of(int step) {
    return static_cast<int>(static_cast<unsigned>(step) % RingSteps) * step_words;
  }

  int steps_;
  const uint32_t *from_, *low_, *high_;
  uint32_t* to_;
};

/// The right operands of multiply_add: inputs of `Tiles` tiles of 8 rows. Rows beyond the last one repeat it;
/// their results are not stored. `Aligned`: four inputs can be loaded at once.
template <class T, int Tiles, bool Aligned, class Rows>
class FewInputs {
 public:
  __device__ FewInputs(const LinearCall& call, const Rows& rows, const Lane& lane, int64_t first_row,
                       int begin, int steps)
      : inputs_left_(static_cast<int>(call.inputs) - 16 * begin - 4 * lane.in_group),
        steps_((inputs_left_ + 15) / 16 < steps ? (inputs_left_ + 15) / 16 : steps),
        full_steps_(static_cast<int>(call.inputs) / 16 - begin) {
    if (full_steps_ > steps) full_steps_ = steps;
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      const int64_t row = first_row + tile * 8 + lane.group;
      x_[tile] = rows.first + (row < call.rows ? row : call.rows - 1) * rows.row_stride +
                 int64_t{16} * begin + 4 * lane.in_group;
      rows.keep_address_in_register(x_[tile]);
    }
  }

  /// Inputs of the batch that starts at step `first`, zeros beyond the end.
  __device__ __forceinline__ void load(int first, uint2 (&b)[batch_steps][Tiles]) const {
    if (first + batch_steps <= full_steps_) {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i)
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) b[i][tile] = load_four(x_[tile], 16 * (first + i));
      return;
    }
#pragma unroll
    for (int i = 0; i < batch_steps; ++i)
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile)
        b[i][tile] = first + i < steps_ ? load_four(x_[tile], 16 * (first + i)) : uint2{0, 0};
  }

 private:
  __device__ __forceinline__ uint2 load_four(const T* x, int at) const {
    if constexpr (Aligned) {
      return *reinterpret_cast<const uint2*>(x + at);
    } else {
      uint32_t bits[4];
      for (int i = 0; i < 4; ++i) bits[i] = at + i < inputs_left_ ? x[at + i].bits : 0;
      return {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16};
    }
  }

  int inputs_left_;  // inputs from this lane's first one to the end of the row
  int steps_;        // steps in which this lane has an input
  int full_steps_;   // steps in which all lanes have all of their four inputs
  const T* x_[Tiles];
};

/// One thread block for each panel and Tiles * 8 rows, one warp for each segment of k.
template <class T, int Tiles, bool Aligned, class Rows, int RingSteps>
__global__ void __launch_bounds__(warp_size* KCut::segments, Rows::min_blocks) linear_few(LinearCall call) {
  __shared__ float segment_sums[KCut::segments][Tiles * 8][panel_outputs];
  const Lane lane;
  const int64_t panel = blockIdx.x, first_row = static_cast<int64_t>(blockIdx.y) * Tiles * 8;
  const KCut cut(call.inputs);
  const int begin = 2 * static_cast<int>(cut.begin(lane.warp)),
            steps = 2 * static_cast<int>(cut.begin(lane.warp + 1)) - begin;
  using Ring = WeightRing<RingSteps>;
  const Ring ring(lane, static_cast<const uint32_t*>(call.panels) + panel * cut.chunks * chunk_words, begin,
                  steps);
  launch_dependents();
#pragma unroll
  for (int batch = 0; batch < Ring::batches; ++batch) ring.fetch(batch * batch_steps);
  const Rows rows(call, KCut::segments * Ring::bytes_per_warp);
  const FewInputs<T, Tiles, Aligned, Rows> inputs(call, rows, lane, first_row, begin, steps);
  float sum[Tiles][4] = {};
  const auto multiply = [&](int first, const uint2(&b)[batch_steps][Tiles]) {
    uint32_t a[batch_steps][4];
    ring.read(first, a);
    const auto step = [&](int i) {
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) multiply_add(sum[tile], a[i], b[i][tile].x, b[i][tile].y, T{});
    };
    if (first + batch_steps <= steps) {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i) step(i);
    } else {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i)
        if (first + i < steps) step(i);
    }
    __syncwarp();  // all lanes have read the places that are filled next
    ring.fetch(first + RingSteps);
  };
  wait_for_prior_kernel();
  rows.prepare();
  uint2 even[batch_steps][Tiles], odd[batch_steps][Tiles];
  inputs.load(0, even);
  for (int step = 0; step < steps; step += 2 * batch_steps) {
    inputs.load(step + batch_steps, odd);
    multiply(step, even);
    inputs.load(step + 2 * batch_steps, even);
    multiply(step + batch_steps, odd);
  }
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      segment_sums[lane.warp][tile * 8 + 2 * lane.in_group + i % 2][2 * lane.group + i / 2] = sum[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tiles * 8 * panel_outputs / 2; i += blockDim.x) {
    const int row = i / (panel_outputs / 2), output = i % (panel_outputs / 2) * 2;
    const OutputPair pair = OutputPair::of(call, panel * panel_outputs + output);
    const PairOperands operands = read_operands(call, first_row + row, pair);
    float low = 0, high = 0;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      low += segment_sums[segment][row][output];
      high += segment_sums[segment][row][output + 1];
    }
    store_pair(call, first_row + row, pair, low, high, operands);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
