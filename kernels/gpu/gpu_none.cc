#include <c10/util/Exception.h>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/graph.h"
#include "kernels/gpu/overlap.h"

// Stands in for *_cuda.cc in a build without CUDA: there is no GPU.
namespace clover::kernels {

const bool has_cuda_kernels = false;

int64_t gpu_count() {
  return 0;
}
at::Device open_gpu(int64_t /*index*/) {
  TORCH_CHECK(
      false,
      "This program was built without CUDA kernels (scripts/setup --cuda builds them); use --device cpu.");
}
bool uses_warpgroup_products(at::Device /*gpu*/) {
  return false;
}
bool kernels_overlap() {
  return false;
}
void let_kernels_overlap(bool /*allowed*/) {}
std::string gpu_name(at::Device /*gpu*/) {
  return "";
}
std::string gpu_pci_bus_id(at::Device /*gpu*/) {
  return "";
}
int64_t free_gpu_memory(at::Device /*gpu*/) {
  return 0;
}
void release_unused_memory(at::Device /*gpu*/) {}
void upload(const at::Tensor& host, at::Tensor& device_tensor) {
  device_tensor.copy_(host);
}
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors) {
  return tensors;
}
std::unique_ptr<GpuEvent> record_event(at::Device /*gpu*/) {
  TORCH_CHECK(false, "record_event: this program was built without CUDA kernels.");
}
PendingCopy copy_to_host_async(const at::Tensor& /*tensor*/) {
  TORCH_CHECK(false, "copy_to_host_async: this program was built without CUDA kernels.");
}
void synchronize(at::Device /*device*/) {}

std::unique_ptr<Graph> Graph::capture(at::Device /*gpu*/, Pool /*pool*/,
                                      const std::function<void()>& /*body*/) {
  TORCH_CHECK(false, "This program was built without CUDA kernels: no graphs can be recorded.");
}

Stream current_stream(const at::Tensor& /*tensor*/) {
  return nullptr;
}

}  // namespace clover::kernels
