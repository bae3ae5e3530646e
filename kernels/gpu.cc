#include "kernels/gpu.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include "kernels/cuda_stream.h"

namespace clover::kernels {

const bool has_cuda_kernels = true;

at::Device open_gpu(int64_t index) {
  // Opened only now: loading it takes seconds, which work on the CPU need not wait for.
  static void* const library = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  TORCH_CHECK(library != nullptr, "The GPU cannot be used: ", ::dlerror(), "; use --device cpu.");
  const int64_t count = at::hasCUDA() ? c10::cuda::device_count() : 0;
  TORCH_CHECK(count > 0, "No GPU was found that this driver and LibTorch can use; use --device cpu.");
  TORCH_CHECK(index >= 0 && index < count, "GPU ", index, " does not exist, expected 0 to ", count - 1, ".");
  at::globalContext().lazyInitDevice(at::kCUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::string gpu_name(at::Device gpu) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu.index()));
  return properties.name;
}

int64_t free_gpu_memory(at::Device gpu) {
  c10::cuda::set_device(gpu.index());
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

void wait_for(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

cuda::Stream cuda::current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace clover::kernels
