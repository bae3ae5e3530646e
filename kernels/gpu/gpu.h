#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <vector>

// The GPUs of this machine.  A build without CUDA has none.
namespace clover::kernels {

extern const bool has_cuda_kernels;  // of this build

/// How many this driver and LibTorch can use.
int64_t gpu_count();

/// GPU number `index`, ready for ops.  c10::Error in one sentence when this build, machine or driver has
/// none; as uses_warpgroup_products.
at::Device open_gpu(int64_t index);

std::string gpu_name(at::Device gpu);

/// Whether products of many rows on `gpu`, the current one, are made by sm_90's own instructions: they must
/// have yielded the bits of all others there.  The first call for a GPU, by open_gpu, tries: c10::Error when
/// that cannot be done, c10::OutOfMemoryError among them.
bool uses_warpgroup_products(at::Device gpu);

/// Bytes of a GPU that nobody uses.
int64_t free_gpu_memory(at::Device gpu);

/// Gives back what LibTorch holds of a GPU for later and nobody uses.
void release_unused_memory(at::Device gpu);

/// Copies `host` (contiguous, on the CPU) into `there` for the ops that follow; on a GPU nobody waits for it.
void upload(const at::Tensor& host, at::Tensor& there);
/// The same into a tensor of its own; on the CPU `host` itself.
inline at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  at::Tensor there = at::empty(host.sizes(), host.options().device(device));
  upload(host, there);
  return there;
}

/// `tensors` of one device on the CPU, contiguous, waited for once; themselves if they are there.
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors);

/// A point in the order of a GPU's ops: it has passed when those begun before it are done.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual void wait() = 0;
  /// On the GPU's clock, both having passed.
  virtual double seconds_since(const Moment& earlier) const = 0;
};
/// Now, on `gpu`.  Not on the CPU, whose ops are done when they return.
std::unique_ptr<Moment> mark(at::Device gpu);

/// A tensor on its way from a GPU to the CPU, behind the ops begun before it; those begun after it need not
/// be waited for.
struct Arriving {
  at::Tensor copy;  // contiguous on the CPU, to be read once it is there
  std::unique_ptr<Moment> there;
  const at::Tensor& wait() const {
    there->wait();
    return copy;
  }
};
Arriving begin_to_host(const at::Tensor& tensor);

/// Until the ops begun on `device` are done; nothing to wait for on the CPU.
void wait_for(at::Device device);

}  // namespace clover::kernels
