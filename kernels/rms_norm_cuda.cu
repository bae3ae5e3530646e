#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

namespace clover::kernels::cuda {
namespace {

constexpr int warps = 8;

/// A block a row.
template <class T>
__global__ void __launch_bounds__(warps* warp_size)
    rms_norm_rows(const float* x, const float* weight, float eps, int64_t width, T* out) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < width; i += warps * warp_size) squares += x[row + i] * x[row + i];
  const float mean = block_sum<warps>(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + eps);
  for (int64_t i = threadIdx.x; i < width; i += warps * warp_size)
    from_float(x[row + i] * inverse * weight[i], out[row + i]);
}

}  // namespace

void launch_rms_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t width, void* out,
                     Element element, Stream stream) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch("rms_norm", rms_norm_rows<T>, dim3(rows), warps * warp_size, 0, stream, x, weight, eps, width,
           static_cast<T*>(out));
  });
}

}  // namespace clover::kernels::cuda
