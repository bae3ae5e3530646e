#include "kernels/gpu/gpu.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels/gpu/graph.h"
#include "kernels/gpu/overlap.h"

namespace clover::kernels {

const bool has_cuda_kernels = true;

namespace {

/// Loads libtorch_cuda.so at the first call; returns the error, or an empty string.  Not linked, because
/// loading takes seconds, which programs on the CPU would wait for.
const std::string& loading_problem() {
  static const std::string problem = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) ? "" : ::dlerror();
  return problem;
}

}  // namespace

int64_t gpu_count() {
  return loading_problem().empty() && at::hasCUDA() ? c10::cuda::device_count() : 0;
}

at::Device open_gpu(int64_t index) {
  TORCH_CHECK(loading_problem().empty(), "The GPU cannot be used: ", loading_problem(),
              "; use --device cpu.");
  const int64_t count = gpu_count();
  TORCH_CHECK(count > 0, "No GPU was found that this driver and LibTorch can use; use --device cpu.");
  TORCH_CHECK(index >= 0 && index < count, "GPU ", index, " does not exist, expected 0 to ", count - 1, ".");
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  at::globalContext().lazyInitDevice(at::kCUDA);
  const std::string allocator = c10::cuda::CUDACachingAllocator::get()->name();
  TORCH_CHECK(allocator == "native", "LibTorch's allocator ", allocator,
              " does not say how much memory it keeps for graphs; take backend:cudaMallocAsync out of "
              "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF.");
  const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  uses_warpgroup_products(gpu);  // its first call launches kernels, so it must precede any graph capture
  return gpu;
}

namespace {

std::atomic<bool>& overlap_allowed() {
  static std::atomic<bool> allowed(std::getenv("CLOVER_NO_OVERLAP") == nullptr);
  return allowed;
}

}  // namespace

bool kernels_overlap() {
  return overlap_allowed();
}
void let_kernels_overlap(bool allowed) {
  overlap_allowed() = allowed;
}

std::string gpu_name(at::Device gpu) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu.index()));
  return properties.name;
}

std::string gpu_pci_bus_id(at::Device gpu) {
  char id[32] = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(id, sizeof id, gpu.index()));
  return id;
}

int64_t free_gpu_memory(at::Device gpu) {
  c10::cuda::set_device(gpu.index());
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  // New tensors can also have what LibTorch's allocator caches, except for the memory of graphs.
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(gpu.index());
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<int64_t>(free) + stats.reserved_bytes[all].current - stats.allocated_bytes[all].current -
         unused_graph_memory(gpu);
}

void release_unused_memory(at::Device gpu) {
  c10::cuda::set_device(gpu.index());
  c10::cuda::CUDACachingAllocator::emptyCache();
}

// Only copies from page-locked memory are asynchronous.  LibTorch keeps `locked` alive until the copy is
// done.
void upload(const at::Tensor& host, at::Tensor& device_tensor) {
  TORCH_CHECK(host.is_cpu() && host.is_contiguous(), "upload: a contiguous tensor of the CPU was expected");
  if (host.numel() == 0) return;
  const at::Tensor locked = at::empty(host.sizes(), host.options().pinned_memory(true));
  std::memcpy(locked.mutable_data_ptr(), host.const_data_ptr(), host.nbytes());
  device_tensor.copy_(locked, /*non_blocking=*/true);
}

std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  if (tensors.empty() || tensors[0].is_cpu()) return tensors;
  const at::Device device = tensors[0].device();
  for (at::Tensor& tensor : tensors) tensor = tensor.contiguous().to(at::kCPU, /*non_blocking=*/true);
  synchronize(device);
  return tensors;
}

namespace {

class CudaEvent final : public GpuEvent {
 public:
  CudaEvent() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(at::Device gpu) {
    C10_CUDA_CHECK(cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream(gpu.index()).stream()));
  }
  void wait() override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  double seconds_since(const GpuEvent& earlier) const override {
    float milliseconds = 0;
    C10_CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_));
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuEvent> record_event(at::Device gpu) {
  TORCH_CHECK(gpu.is_cuda(), "record_event: a GPU was expected");
  auto event = std::make_unique<CudaEvent>();
  event->record(gpu);
  return event;
}

// A non-blocking copy of LibTorch allocates page-locked memory, so this does not wait.
PendingCopy copy_to_host_async(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cuda(), "copy_to_host_async: a tensor of a GPU was expected");
  const at::Tensor copy = tensor.contiguous().to(at::kCPU, /*non_blocking=*/true);
  return {copy, record_event(tensor.device())};
}

void synchronize(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace clover::kernels
