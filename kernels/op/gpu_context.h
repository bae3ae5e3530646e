#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;  // declared by CUDA: cudaStream_t is CUstream_st*

namespace at {
class Tensor;
}  // namespace at

namespace clover::kernels {

/// A CUDA stream: cudaStream_t, for code that does not include CUDA's headers.
using Stream = CUstream_st*;

/// Whether this build has CUDA kernels.
extern const bool has_cuda_kernels;

/// False for a tensor on the CPU, true for one on a GPU; c10::Error for any other, naming the op `op`.
bool on_gpu(const char* op, const at::Tensor& tensor);

/// The current stream of the GPU that `tensor` is on, which ATen's ops use too.
Stream current_stream(const at::Tensor& tensor);

/// What `run_on_gpu` gets beside the call: the stream to launch kernels on, and temporary memory.
class GpuContext {
 public:
  /// For the GPU that `tensor` is on.  `tensor` must outlive this object.  c10::Error, naming the op, in a
  /// build without CUDA kernels.
  GpuContext(const char* op, const at::Tensor& tensor);

  const Stream stream;  // the GPU's current stream
  /// The constructor's tensor.
  const at::Tensor& tensor() const { return tensor_; }

  /// Temporary memory on the GPU: `count` uninitialised Ts, nullptr for 0.  Once the pointer is destroyed,
  /// work that is queued later on the stream may reuse the memory.
  template <class T>
  std::shared_ptr<T> scratch(int64_t count) const {
    return std::static_pointer_cast<T>(bytes(count * static_cast<int64_t>(sizeof(T))));
  }

  /// `count` counters on the GPU, all zero, which live as long as the process.  A kernel that uses them sets
  /// them back to zero.  Requests for the same `count` on one GPU get the same counters, so kernels that use
  /// them must not run at the same time.
  unsigned* zeroed_counters(int64_t count) const;

 private:
  std::shared_ptr<void> bytes(int64_t count) const;

  const at::Tensor& tensor_;
};

/// Throws c10::Error: the kernel `name` could not be launched, for `reason`.
[[noreturn]] void launch_failed(const char* name, const char* reason);

}  // namespace clover::kernels
