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

// Whether sm_90's products of four warps have the bits of all others.  NVIDIA does not promise it, a
// published model of its tensor cores says so (docs/decisions/0005), and each GPU is asked before they are
// used.
namespace clover::kernels {
namespace {

/// Of very different magnitudes, fp16's smallest among them: what is cut off when numbers are added shows.
at::Tensor uneven(int64_t rows, int64_t columns, at::ScalarType type) {
  auto numbers = at::make_generator<at::CPUGeneratorImpl>(rows + columns);
  const at::Tensor exponents = at::randint(-14, 7, {rows, columns}, numbers, at::kFloat);
  return (at::randn({rows, columns}, numbers, at::kFloat) * at::pow(2.0, exponents)).to(type);
}

at::Tensor product(const at::Tensor& x, const PackedWeight& weight, const cuda::LinearPlan& plan) {
  at::Tensor y = at::empty({x.size(0), weight.outputs()}, x.options().dtype(at::kFloat));
  cuda::run_by(plan, call_of(x, weight, at::Tensor(), y, /*accumulate=*/false), GpuContext("linear", x));
  return to_host({y})[0].view(at::kInt);
}

/// All tiles of clusters, beside flat blocks.
bool agree(at::Device gpu, at::ScalarType type) {
  // 54 chunks, 13 or 14 a segment, more than a ring holds, the last one ragged; a tile of outputs that ends
  // early.
  constexpr int64_t outputs = 130, inputs = 1720;
  const PackedWeight weight = PackedWeight::pack({uneven(outputs, inputs, type)}).to(gpu);
  for (const int rows : cuda::ClusterPlan::row_tile_sizes) {
    const at::Tensor x = to_device(uneven(rows - 3, inputs, type), gpu);
    const at::Tensor expected = product(x, weight, cuda::LinearPlan::by(cuda::FlatPlan{1, 8}));
    if (!at::equal(product(x, weight, cuda::LinearPlan::by(cuda::ClusterPlan::of(rows))), expected))
      return false;
  }
  return true;
}

}  // namespace

bool uses_warpgroup_products(at::Device gpu) {
  static auto& known = *new std::map<c10::DeviceIndex, bool>;
  const auto found = known.find(gpu.index());
  if (found != known.end()) return found->second;
  const bool uses = cuda::gpu_limits().clusters && agree(gpu, at::kBFloat16) && agree(gpu, at::kHalf);
  known.emplace(gpu.index(), uses);  // only now: what is thrown is no answer
  return uses;
}

bool cuda::may_use_clusters(const GpuContext& context) {
  return uses_warpgroup_products(context.tensor().device());
}

}  // namespace clover::kernels
