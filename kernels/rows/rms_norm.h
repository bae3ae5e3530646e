#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

class PackedWeight;

/// out[r, h] = x[r, h] / sqrt(mean_h(x[r, :]^2) + eps) * weight[h], all in fp32, rounded once to out's dtype.
///   x fp32 [R, H] contiguous; weight fp32 [H]; out [R, H] bf16|fp16|fp32 contiguous, written in place
/// The mean is taken in one fixed order that depends on H alone.
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out);

/// The same of chosen rows: out[r] is the norm of x[rows[r]].  x fp32 [N, H]; rows i64 [R], each in [0, N),
/// which a GPU does not check.
void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);
/// The same of rows of a packed matrix [N, H], such as an embedding.
void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);

/// The norm of x + silu(a), which is what follows a residual block.  x and a fp32 [R, H].
void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                   at::Tensor& out);

struct NormCall {
  const float* x;  // [rows, width], or [.., width] where rows are chosen; unused where `panels` is set
  const int64_t*
      chosen;          // [rows] the row of x, or of panels, for each row of out; null: its own.  A GPU's only
  const float* added;  // [rows, width] whose SiLU is added to x first, or null.  A GPU's only
  const float* weight;  // [width]
  float eps;
  int64_t rows, width;
  void* out;  // [rows, width]
  Element element;
  const void* panels = nullptr;  // a PackedWeight's, of `stored`, whose chosen rows are taken.  A GPU's only
  Element stored = Element::fp32;
};
void run_on_cpu(const NormCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const NormCall& call, const GpuContext& context);

namespace cpu {

struct NormLoops {
  /// Rows [begin, end) of x [.., width] to those of `out`, which may be x itself.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
                   int64_t begin, int64_t end);
};

}  // namespace cpu
}  // namespace clover::kernels
