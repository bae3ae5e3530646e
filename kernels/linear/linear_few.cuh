#pragma once

#include "kernels/linear/linear_rows.cuh"
#include "kernels/linear/linear_tile.cuh"

namespace clover::kernels::cuda {
namespace {

// Products of few rows, which are bound by reading weights. Each warp copies its part of a panel through a
// ring of its own in shared memory, a step (512 consecutive bytes) at a time, so that loads are always in
// flight, from before the kernel ahead has ended.
constexpr int batch_steps = 4;

/// The place of 16 bytes of a step in the ring, such that lanes that read together find them in different
/// banks.
CLOVER_HOST_DEVICE int ring_place(int sixteen) {
  return sixteen ^ (sixteen >> 3) << 1;
}

/// A warp's ring of weights: steps of a panel, in batches.
template <int RingSteps>
class WeightRing {
 public:
  static constexpr int batches = RingSteps / batch_steps;
  static constexpr int64_t bytes_a_warp = int64_t{RingSteps} * step_words * 4;

  /// `begin`: step of the panel that is the first; `panel`: its words.
  __device__ WeightRing(const Lane& lane, const uint32_t* panel, int begin, int steps) : steps_(steps) {
    const int in_warp = threadIdx.x % warp_size;
    uint32_t* ring = shared_memory<uint32_t>() + lane.warp * RingSteps * step_words;
    from_ = panel + int64_t{begin} * step_words + 4 * in_warp;
    to_ = ring + 4 * ring_place(in_warp);
    // Lane 4g + t multiplies pairs 2t and 2t + 1 of outputs 2g and 2g + 1.
    const int within = lane.group % 2 * 2, first = 8 * lane.in_group + lane.group / 2;
    low_ = ring + 4 * ring_place(first) + within;
    high_ = ring + 4 * ring_place(first + 4) + within;
    keep_global(from_);
    keep_shared(to_);
    keep_shared(low_);
    keep_shared(high_);
  }

  /// Begins to copy the batch that starts at step `first`, as one copy group, which may be empty.
  __device__ __forceinline__ void fetch(int first) const {
    const uint32_t* from = from_ + first * step_words;
    uint32_t* to = to_ + slot_of(first);
    const auto copy = [&](int i) { copy_async(to + i * step_words, from + i * step_words, false); };
    if (first + batch_steps <= steps_) {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i) copy(i);
    } else {
      for (int i = 0; i < steps_ - first; ++i) copy(i);
    }
    end_copy_group();
  }

  /// The left operands of the batch that starts at step `first`, the oldest in flight.
  __device__ __forceinline__ void read(int first, uint32_t (&a)[batch_steps][4]) const {
    wait_for_copies<batches - 1>();
    __syncwarp();  // those of all lanes are there
    const int slot = slot_of(first);
#pragma unroll
    for (int i = 0; i < batch_steps; ++i)
      read_left(low_ + slot + i * step_words, high_ + slot + i * step_words, a[i]);
  }

 private:
  /// Its place in the ring, in words.
  __device__ static int slot_of(int step) {
    return static_cast<int>(static_cast<unsigned>(step) % RingSteps) * step_words;
  }

  int steps_;
  const uint32_t *from_, *low_, *high_;
  uint32_t* to_;
};

/// The right operands: inputs of `Tiles` times eight rows. Rows beyond the last repeat it; their results are
/// ignored.
template <class T, int Tiles, bool Aligned, class Rows>
class FewInputs {
 public:
  __device__ FewInputs(const LinearCall& call, const Rows& rows, const Lane& lane, int64_t first_row,
                       int begin, int steps)
      : left_(static_cast<int>(call.inputs) - 16 * begin - 4 * lane.in_group),
        steps_((left_ + 15) / 16 < steps ? (left_ + 15) / 16 : steps),
        whole_(static_cast<int>(call.inputs) / 16 - begin) {
    if (whole_ > steps) whole_ = steps;
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      const int64_t row = first_row + tile * 8 + lane.group;
      x_[tile] = rows.first + (row < call.rows ? row : call.rows - 1) * rows.apart + int64_t{16} * begin +
                 4 * lane.in_group;
      rows.keep(x_[tile]);
    }
  }

  /// Inputs of the batch that starts at step `first`, zeros beyond the end.
  __device__ __forceinline__ void load(int first, uint2 (&b)[batch_steps][Tiles]) const {
    if (first + batch_steps <= whole_) {
#pragma unroll
      for (int i = 0; i < batch_steps; ++i)
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) b[i][tile] = four(x_[tile], 16 * (first + i));
      return;
    }
#pragma unroll
    for (int i = 0; i < batch_steps; ++i)
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile)
        b[i][tile] = first + i < steps_ ? four(x_[tile], 16 * (first + i)) : uint2{0, 0};
  }

 private:
  __device__ __forceinline__ uint2 four(const T* x, int at) const {
    if constexpr (Aligned) {
      return *reinterpret_cast<const uint2*>(x + at);
    } else {
      uint32_t part[4];
      for (int i = 0; i < 4; ++i) part[i] = at + i < left_ ? x[at + i].bits : 0;
      return {part[0] | part[1] << 16, part[2] | part[3] << 16};
    }
  }

  int left_;   // inputs from this lane's first on
  int steps_;  // in which it has one
  int whole_;  // steps in which all lanes have all
  const T* x_[Tiles];
};

/// One block for each panel, one warp for each segment of k.
template <class T, int Tiles, bool Aligned, class Rows, int RingSteps>
__global__ void __launch_bounds__(warp_size* KCut::segments, Rows::least_blocks) linear_few(LinearCall call) {
  __shared__ float part[KCut::segments][Tiles * 8][panel_outputs];
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
  const Rows rows(call, KCut::segments * Ring::bytes_a_warp);
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
    __syncwarp();  // all lanes have read what is filled next
    ring.fetch(first + RingSteps);
  };
  wait_for_prior_kernel();
  rows.make();
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
      part[lane.warp][tile * 8 + 2 * lane.in_group + i % 2][2 * lane.group + i / 2] = sum[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tiles * 8 * panel_outputs / 2; i += blockDim.x) {
    const int row = i / (panel_outputs / 2), output = i % (panel_outputs / 2) * 2;
    const OutputPair pair = OutputPair::of(call, panel * panel_outputs + output);
    const BesidePair beside = read_beside(call, first_row + row, pair);
    float low = 0, high = 0;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      low += part[segment][row][output];
      high += part[segment][row][output + 1];
    }
    store_pair(call, first_row + row, pair, low, high, beside);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
