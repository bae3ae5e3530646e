#include "kernels/op/gpu_context.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <map>

namespace clover::kernels {
namespace {

Stream stream_of(const char* op, const at::Tensor& tensor) {
  TORCH_CHECK(has_cuda_kernels, op, ": this program was built without CUDA kernels; use the device cpu.");
  return current_stream(tensor);
}

}  // namespace

GpuContext::GpuContext(const char* op, const at::Tensor& tensor)
    : stream(stream_of(op, tensor)), tensor_(tensor) {}

std::shared_ptr<void> GpuContext::bytes(int64_t count) const {
  if (count == 0) return nullptr;
  const at::Tensor memory = at::empty({count}, tensor_.options().dtype(at::kByte));
  return {memory.mutable_data_ptr(), [memory](void*) {}};
}

// The first request allocates them.  It comes while no graph is captured, because every kernel runs once
// before its capture (Graph::capture).  Never freed: the driver may shut down before static destructors run.
unsigned* GpuContext::zeroed_counters(int64_t count) const {
  static auto& buffers = *new std::map<std::pair<c10::DeviceIndex, int64_t>, at::Tensor>;
  at::Tensor& counters = buffers[{tensor_.device().index(), count}];
  if (!counters.defined()) counters = at::zeros({count}, tensor_.options().dtype(at::kInt));
  return reinterpret_cast<unsigned*>(counters.mutable_data_ptr<int32_t>());
}

void launch_failed(const char* name, const char* reason) {
  TORCH_CHECK(false, name, ": the CUDA kernel could not be started: ", reason, ".");
}

}  // namespace clover::kernels
