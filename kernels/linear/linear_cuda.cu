#include "kernels/linear/linear_few.cuh"
#include "kernels/linear/linear_flat.cuh"
#include "kernels/linear/linear_launch.h"
#include "kernels/linear/linear_many.cuh"
#include "kernels/rows/norm.cuh"
#include "kernels/rows/rms_norm.h"
#include "kernels/vocabulary/top_k.h"

namespace clover::kernels {
namespace cuda {
namespace {

/// Products of fp32 weights, which serve tests and comparisons: one thread for each two outputs of a row;
/// each output is one chain of fused multiply-adds.
__global__ void linear_fp32(LinearCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t output = 2 * (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x), row = blockIdx.x;
  const int64_t inputs = output < call.outputs ? call.inputs : 0;
  const float* x = static_cast<const float*>(call.x) + row * call.inputs;
  const float* w = static_cast<const float*>(call.panels) +
                   output / panel_outputs * call.inputs * panel_outputs + output % panel_outputs;
  float low = 0, high = 0;
  for (int64_t k = 0; k < inputs; ++k) {
    low = fmaf(x[k], w[k * panel_outputs], low);
    high = fmaf(x[k], w[k * panel_outputs + 1], high);
  }
  const OutputPair pair = OutputPair::of(call, output);
  store_pair(call, row, pair, low, high, read_operands(call, row, pair));
}

constexpr int warps_that_norm = 4;  // of a thread block of norm_and_store

/// Norms and rotates queries and keys and stores them and the values; `sums` [rows, outputs]. One warp for
/// each head of a row.
__global__ void norm_and_store(RopeCall call, const float* sums) {
  launch_dependents();
  wait_for_prior_kernel();
  const int size = static_cast<int>(call.head_size), lane = threadIdx.x % warp_size;
  const int64_t heads = call.query_heads + 2 * call.kv_heads, row = blockIdx.x;
  const int64_t head = static_cast<int64_t>(blockIdx.y) * warps_that_norm + threadIdx.x / warp_size;
  if (head >= heads) return;
  const float* head_sums = sums + (row * heads + head) * size;
  const float* weight = head < call.query_heads                   ? call.query_norm
                        : head < call.query_heads + call.kv_heads ? call.key_norm
                                                                  : nullptr;
  float squares = 0;
  for (int at = lane; weight != nullptr && at < size; at += warp_size)
    squares += head_sums[at] * head_sums[at];
  const float inverse = inverse_norm(warp_sum(squares), size, call.norm_eps);
  for (int at = 2 * lane; at < size; at += 2 * warp_size) {
    float low = head_sums[at], high = head_sums[at + 1];
    if (weight != nullptr) low *= inverse * weight[at], high *= inverse * weight[at + 1];
    const OutputPair pair{head * size + at, static_cast<unsigned>(head), static_cast<unsigned>(at)};
    store_rotated(call, row, pair, low, high, read_operands(call, row, pair));
  }
}

int64_t pairs_of(const LinearCall& call) {
  return (call.outputs + 1) / 2;
}

template <class T, int Tiles, bool Aligned, class Rows, int RingSteps>
void launch_few(const LinearCall& call, dim3 grid, int64_t normed_bytes, Stream stream) {
  launch("linear", linear_few<T, Tiles, Aligned, Rows, RingSteps>, grid, warp_size * KCut::segments,
         KCut::segments * WeightRing<RingSteps>::bytes_per_warp + normed_bytes, stream, call);
}

/// A product of at most two thread blocks per multiprocessor gets larger rings, for more loads in flight.
template <class T, int Tiles, class Rows>
void launch_few(const LinearCall& call, dim3 grid, int64_t normed_bytes, Stream stream) {
  constexpr int64_t few_blocks = 264;  // for the 132 multiprocessors of an H100
  if (int64_t{grid.x} * grid.y > few_blocks)
    return launch_few<T, Tiles, true, Rows, Rows::ring_steps>(call, grid, normed_bytes, stream);
  launch_few<T, Tiles, true, Rows, 32>(call, grid, normed_bytes, stream);
}

template <class T, int Tiles>
void launch_few(const LinearCall& call, Stream stream) {
  const dim3 grid(panels_of(call.outputs), (call.rows + Tiles * 8 - 1) / (Tiles * 8));
  const bool aligned = call.inputs % 4 == 0 && is_aligned(call.x, 8);
  if (!aligned)
    return launch_few<T, Tiles, false, GivenRows<T>, GivenRows<T>::ring_steps>(call, grid, 0, stream);
  launch_few<T, Tiles, GivenRows<T>>(call, grid, 0, stream);
}

template <class T>
void launch_normed(const LinearCall& call, Stream stream) {
  const int64_t bytes = call.rows * normed_row_stride(call.inputs) * static_cast<int64_t>(sizeof(T));
  launch_few<T, 1, NormedRows<T>>(call, dim3(panels_of(call.outputs)), bytes, stream);
}

template <class T, int PanelsPerWarp, int TilesPerWarp>
void launch_flat(const LinearCall& call, const FlatPlan& plan, const SplitSums& sums, Stream stream) {
  using Whole = FlatChunks<T, FlatShape<PanelsPerWarp, TilesPerWarp, false>>;
  using Split = FlatChunks<T, FlatShape<PanelsPerWarp, TilesPerWarp, true>>;
  with_epilogue(call, [&](auto end) {
    launch_whole_and_split<Whole, Split, decltype(end)::value>(call, plan, sums, stream);
  });
}

template <class T, int PanelsPerWarp>
void launch_flat(const LinearCall& call, const FlatPlan& plan, const SplitSums& sums, Stream stream) {
  switch (plan.tiles_per_warp) {
    case 2:
      return launch_flat<T, PanelsPerWarp, 2>(call, plan, sums, stream);
    case 4:
      return launch_flat<T, PanelsPerWarp, 4>(call, plan, sums, stream);
    case 6:
      return launch_flat<T, PanelsPerWarp, 6>(call, plan, sums, stream);
    default:
      return launch_flat<T, PanelsPerWarp, 8>(call, plan, sums, stream);
  }
}

template <class T>
void launch_16_bit(const LinearCall& call, const LinearPlan& plan, float* workspace, unsigned* arrived,
                   Stream stream) {
  switch (plan.kernel) {
    case LinearPlan::Kernel::clusters:
      return launch_linear_clusters(call, plan.clusters, stream);
    case LinearPlan::Kernel::flat: {
      const SplitSums sums = split_sums(call, plan.flat, workspace, arrived);
      return plan.flat.panels_per_warp == 1 ? launch_flat<T, 1>(call, plan.flat, sums, stream)
                                            : launch_flat<T, 2>(call, plan.flat, sums, stream);
    }
    case LinearPlan::Kernel::few:
      if (call.norm != nullptr) return launch_normed<T>(call, stream);
      return call.rows <= 8 ? launch_few<T, 1>(call, stream) : launch_few<T, 2>(call, stream);
  }
}

}  // namespace

GpuLimits gpu_limits() {
  constexpr int64_t declared = 16;  // bytes of shared memory that the kernel declares itself
  return {shared_bytes_per_block() - declared >= FlatShape<2, 8, false>::bytes, has_warpgroup_products(),
          multiprocessors()};
}

int64_t linear_workspace(const LinearCall& call, const LinearPlan& plan) {
  const int64_t sums = call.rope.query_norm != nullptr ? call.rows * call.outputs : 0;
  return sums + split_floats(call, plan);
}

void launch_linear(const LinearCall& call, const LinearPlan& plan, float* workspace, unsigned* arrived,
                   Stream stream) {
  if (call.rope.query_norm != nullptr) {
    // A norm needs all sums of a head, which several thread blocks may compute; so sums go to memory first.
    LinearCall product = call;
    product.epilogue = Epilogue::store;
    product.rope = {};
    product.y = workspace;
    launch_linear(product, plan, workspace + call.rows * call.outputs, arrived, stream);
    const int64_t heads = call.rope.query_heads + 2 * call.rope.kv_heads;
    return launch("linear", norm_and_store, dim3(call.rows, (heads + warps_that_norm - 1) / warps_that_norm),
                  warps_that_norm * warp_size, 0, stream, call.rope, workspace);
  }
  switch (call.element) {
    case Element::bf16:
      return launch_16_bit<Bf16>(call, plan, workspace, arrived, stream);
    case Element::fp16:
      return launch_16_bit<Fp16>(call, plan, workspace, arrived, stream);
    case Element::fp32: {
      constexpr int threads = 128;
      const dim3 grid(call.rows, (pairs_of(call) + threads - 1) / threads);
      return launch("linear", linear_fp32, grid, threads, 0, stream, call);
    }
  }
}

void run_linear(const LinearPlan& plan, const LinearCall& call, const GpuContext& context) {
  const auto workspace = context.scratch<float>(linear_workspace(call, plan));
  unsigned* const arrived = workspace != nullptr ? context.zeroed_counters(max_split_tiles) : nullptr;
  launch_linear(call, plan, workspace.get(), arrived, context.stream);
}

namespace {

/// Computes the product; if the product's kernel does not norm the rows, another kernel does it first.
void norm_and_run(LinearCall call, const GpuContext& context) {
  GpuLimits limits = gpu_limits();
  limits.clusters = may_use_clusters(context);
  if (call.norm == nullptr || norms_in_kernel(call))
    return run_linear(linear_plan(call, limits), call, context);
  const int64_t element_bytes = bytes_of(call.element);
  const auto rows = context.scratch<unsigned char>(call.rows * call.inputs * element_bytes);
  NormCall norm{};
  norm.x = static_cast<const float*>(call.x);
  norm.weight = call.norm;
  norm.eps = call.norm_eps;
  norm.rows = call.rows;
  norm.width = call.inputs;
  norm.out = rows.get();
  norm.element = call.element;
  run_on_gpu(norm, context);
  call.x = rows.get();
  call.norm = nullptr;
  run_linear(linear_plan(call, limits), call, context);
}

}  // namespace
}  // namespace cuda

void run_on_gpu(const LinearCall& call, const GpuContext& context) {
  if (call.epilogue != Epilogue::arg_max) return cuda::norm_and_run(call, context);
  const int64_t panels = panels_of(call.outputs);
  const auto keys = context.scratch<uint64_t>(call.rows * panels);
  LinearCall product = call;
  product.best_keys = keys.get();
  cuda::norm_and_run(product, context);
  run_on_gpu(BestKeyCall{keys.get(), call.rows, panels, call.indices}, context);
}

}  // namespace clover::kernels
