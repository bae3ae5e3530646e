#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/op/gpu_context.h"

// The GPUs of this machine.  A build without CUDA has none.
namespace clover::kernels {

/// How many GPUs this driver and LibTorch can use.
int64_t gpu_count();

/// GPU number `index`, ready for ops.  c10::Error of one sentence when this build, machine or driver has
/// none, or when uses_warpgroup_products fails.
at::Device open_gpu(int64_t index);

std::string gpu_name(at::Device gpu);

/// Whether products of many rows on `gpu`, the current one, use sm_90's wgmma instructions, which they do
/// only if these yield the same bits as mma.sync there.  The first call for a GPU, made by open_gpu, tries
/// that out: c10::Error when it cannot be done, c10::OutOfMemoryError among them.
bool uses_warpgroup_products(at::Device gpu);

/// Bytes of a GPU that nobody uses.
int64_t free_gpu_memory(at::Device gpu);

/// Gives memory back to the GPU that LibTorch's allocator keeps and nobody uses.
void release_unused_memory(at::Device gpu);

/// Queues a copy of `host` (contiguous, on the CPU) to `device_tensor`, for the ops that follow; does not
/// wait for a GPU.
void upload(const at::Tensor& host, at::Tensor& device_tensor);
/// The same to a new tensor; on the CPU `host` itself.
inline at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  at::Tensor copy = at::empty(host.sizes(), host.options().device(device));
  upload(host, copy);
  return copy;
}

/// `tensors`, all on one device, as contiguous tensors on the CPU, with one wait for all; CPU tensors come
/// back as they are.
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors);

/// A CUDA event: a point in the order of a GPU's ops.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  /// Until the ops queued before the event are done.
  virtual void wait() = 0;
  /// On the GPU's clock, once both events are done.
  virtual double seconds_since(const GpuEvent& earlier) const = 0;
};
/// An event behind the ops queued so far on `gpu`, which is not the CPU.
std::unique_ptr<GpuEvent> record_event(at::Device gpu);

/// An asynchronous copy from a GPU to the CPU.  It comes behind the ops queued before it; ops queued later
/// need not be waited for.
struct PendingCopy {
  at::Tensor copy;  // contiguous on the CPU; to be read once `event` is done
  std::unique_ptr<GpuEvent> event;
  /// The copy, once it is complete.
  const at::Tensor& wait() const {
    event->wait();
    return copy;
  }
};
PendingCopy copy_to_host_async(const at::Tensor& tensor);

/// Until all ops queued on `device` are done; returns at once for the CPU.
void synchronize(at::Device device);

}  // namespace clover::kernels
