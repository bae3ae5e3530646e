#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <map>

#include "kernels/gpu/gpu.h"
#include "kernels/linear/call_of.h"
#include "kernels/linear/linear_launch.h"
#include "kernels/weights/packed_weight.h"

// Whether wgmma of sm_90 yields the same bits as mma.sync.  NVIDIA does not promise it; a published model of
// its tensor cores says so (docs/decisions/0005).  So products are compared once on each GPU before wgmma is
// used.
namespace clover::kernels {
namespace {

/// Random numbers of very different magnitudes, fp16's smallest among them, so that differences in the
/// rounding of sums show.
at::Tensor mixed_magnitudes(int64_t rows, int64_t columns, at::ScalarType type) {
  auto numbers = at::make_generator<at::CPUGeneratorImpl>(rows + columns);
  const at::Tensor exponents = at::randint(-14, 7, {rows, columns}, numbers, at::kFloat);
  return (at::randn({rows, columns}, numbers, at::kFloat) * at::pow(2.0, exponents)).to(type);
}

at::Tensor product(const at::Tensor& x, const PackedWeight& weight, const cuda::LinearPlan& plan) {
  at::Tensor y = at::empty({x.size(0), weight.outputs()}, x.options().dtype(at::kFloat));
  cuda::run_linear(plan, call_of(x, weight, at::Tensor(), y, /*accumulate=*/false), GpuContext("linear", x));
  return to_host({y})[0].view(at::kInt);
}

/// Whether the kernel `clusters`, with each tile size, yields the bits of the kernel `flat`.
bool products_agree(at::Device gpu, at::ScalarType type) {
  // 54 chunks: 13 or 14 in a segment, more than a ring holds, and the last chunk is not full. Neither is the
  // last tile of outputs.
  constexpr int64_t outputs = 130, inputs = 1720;
  const PackedWeight weight = PackedWeight::pack({mixed_magnitudes(outputs, inputs, type)}).to(gpu);
  for (const int rows : cuda::ClusterPlan::row_tile_sizes) {
    const at::Tensor x = to_device(mixed_magnitudes(rows - 3, inputs, type), gpu);
    const at::Tensor expected = product(x, weight, cuda::LinearPlan::by(cuda::FlatPlan{1, 8}));
    if (!at::equal(product(x, weight, cuda::LinearPlan::by(cuda::ClusterPlan::of(rows))), expected))
      return false;
  }
  return true;
}

}  // namespace

bool uses_warpgroup_products(at::Device gpu) {
  static auto& result_by_gpu = *new std::map<c10::DeviceIndex, bool>;
  const auto found = result_by_gpu.find(gpu.index());
  if (found != result_by_gpu.end()) return found->second;
  const bool uses =
      cuda::gpu_limits().clusters && products_agree(gpu, at::kBFloat16) && products_agree(gpu, at::kHalf);
  result_by_gpu.emplace(gpu.index(), uses);  // after the comparison, which may throw
  return uses;
}

bool cuda::may_use_clusters(const GpuContext& context) {
  return uses_warpgroup_products(context.tensor().device());
}

}  // namespace clover::kernels
