#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/op/gpu_context.h"

// The GPUs of this machine.  In a build without CUDA there are none.
namespace clover::kernels {

/// How many GPUs this driver and LibTorch can use.
int64_t gpu_count();

/// Makes GPU number `index` the current one, ready for ops, and returns it.  c10::Error of one sentence if
/// this build, machine or driver has no such GPU, or if uses_warpgroup_products throws.
at::Device open_gpu(int64_t index);

std::string gpu_name(at::Device gpu);
/// Where it sits, "0000:3B:00.0", as NVML names it.
std::string gpu_pci_bus_id(at::Device gpu);

/// Whether matrix products of many rows on `gpu`, the current one, use sm_90's wgmma instructions.  They do
/// if these yield the same bits as mma.sync on this GPU.  The first call for a GPU, in open_gpu, compares
/// them and throws c10::Error (or its subclass c10::OutOfMemoryError) if that fails.
bool uses_warpgroup_products(at::Device gpu);

/// Bytes of GPU memory that new tensors can have: free memory, and what LibTorch's allocator caches
/// other than for graphs.
int64_t free_gpu_memory(at::Device gpu);

/// Returns the memory that LibTorch's allocator caches to the driver.
void release_unused_memory(at::Device gpu);

/// Queues a copy of `host` (contiguous, on the CPU) to `device_tensor`, of the same shape.  Ops queued later
/// see it; the call does not wait for the GPU.
void upload(const at::Tensor& host, at::Tensor& device_tensor);
/// The same to a new tensor on `device`; if that is the CPU, returns `host` itself.
inline at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  at::Tensor copy = at::empty(host.sizes(), host.options().device(device));
  upload(host, copy);
  return copy;
}

/// Copies `tensors`, all on one device, to contiguous tensors on the CPU, and waits for the GPU only once.
/// CPU tensors are returned as they are.
std::vector<at::Tensor> to_host(std::vector<at::Tensor> tensors);

/// A CUDA event: a point in a GPU's queue of ops.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  /// Blocks until the ops queued before the event are done.
  virtual void wait() = 0;
  /// Seconds between the events by the GPU's clock; both must be done.
  virtual double seconds_since(const GpuEvent& earlier) const = 0;
};
/// An event behind the ops queued so far on `gpu`, which must not be the CPU.
std::unique_ptr<GpuEvent> record_event(at::Device gpu);

/// An asynchronous copy from a GPU to the CPU, in progress.  Waiting for it does not wait for ops that were
/// queued later.
struct PendingCopy {
  at::Tensor copy;  // contiguous, on the CPU; valid once `event` is done
  std::unique_ptr<GpuEvent> event;
  /// Blocks until the copy is complete, and returns it.
  const at::Tensor& wait() const {
    event->wait();
    return copy;
  }
};
/// Queues a copy of `tensor`, which is on a GPU.
PendingCopy copy_to_host_async(const at::Tensor& tensor);

/// Blocks until all ops queued on `device` are done; returns at once for the CPU.
void synchronize(at::Device device);

}  // namespace clover::kernels
