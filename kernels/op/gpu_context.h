#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;  // CUDA's: cudaStream_t points to one

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

/// The stream on which ATen would run an op of this tensor, which is on a GPU.
Stream current_stream(const at::Tensor& tensor);

/// What a GPU kernel is launched with beside its call.
class GpuContext {
 public:
  /// Of the GPU that `tensor`, which must outlive this, is on.  c10::Error, naming the op, in a build without
  /// CUDA kernels.
  GpuContext(const char* op, const at::Tensor& tensor);

  const Stream stream;
  const at::Tensor& tensor() const { return tensor_; }

  /// `count` Ts of the GPU's memory, uninitialised; nullptr for 0.  When the pointer goes the memory may be
  /// used again by what is queued later on the stream.
  template <class T>
  std::shared_ptr<T> scratch(int64_t count) const {
    return std::static_pointer_cast<T>(bytes(count * static_cast<int64_t>(sizeof(T))));
  }

  /// `count` counters that are zero and stay for the life of the process.  Whoever counts with them leaves
  /// them zero.  All who ask for the same count on a GPU share them, so their kernels must not run at once.
  unsigned* zeros(int64_t count) const;

 private:
  std::shared_ptr<void> bytes(int64_t count) const;

  const at::Tensor& tensor_;
};

/// c10::Error: the kernel `name` could not be launched.
[[noreturn]] void launch_failed(const char* name, const char* reason);

}  // namespace clover::kernels
