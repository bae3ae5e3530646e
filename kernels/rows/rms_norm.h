#pragma once

#include "kernels/op/call.h"

namespace clover::kernels {

class PackedWeight;

/// RMSNorm: out[r, h] = x[r, h] / sqrt(mean(x[r, :]^2) + eps) * weight[h], in fp32, rounded once to out's
/// dtype.
///   x fp32 [R, H] contiguous; weight fp32 [H]; out [R, H] bf16|fp16|fp32 contiguous, written in place
/// The mean adds the squares in a fixed order that depends only on H.
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out);

/// The same for selected rows: out[r, :] is the norm of x[rows[r], :].  x fp32 [N, H]; rows i64 [R], each in
/// [0, N), which a GPU does not check.
void rms_norm_of(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);
/// The same for rows of a packed matrix x [N, H] bf16|fp16|fp32, such as an embedding.
void rms_norm_of(const PackedWeight& x, const at::Tensor& rows, const at::Tensor& weight, double eps,
                 at::Tensor& out);

/// The RMSNorm of x + silu(a), the output of a head's residual block.  x and a fp32 [R, H].
void silu_rms_norm(const at::Tensor& x, const at::Tensor& a, const at::Tensor& weight, double eps,
                   at::Tensor& out);

struct NormCall {
  // out[r] is the norm of x[r], of x[x_rows[r]], of x[r] + silu(silu_input[r]), or of row x_rows[r] of
  // panels.  The CPU does only the first; null members are not used.
  const float* x;           // [rows, width]; with x_rows [any, width]; null with panels
  const int64_t* x_rows;    // [rows] or null
  const float* silu_input;  // [rows, width] or null
  const float* weight;      // [width]
  float eps;
  int64_t rows, width;
  void* out;                              // [rows, width]
  Element element;                        // of out
  const void* panels = nullptr;           // a PackedWeight's panels, or null
  Element panel_element = Element::fp32;  // of panels
};
void run_on_cpu(const NormCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const NormCall& call, const GpuContext& context);

namespace cpu {

struct NormLoops {
  /// out[r] = the norm of x[r] for rows r of [begin, end), both with `width` numbers a row.  `out` may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
                   int64_t begin, int64_t end);
};

}  // namespace cpu
}  // namespace clover::kernels
