#include "kernels/cpu/family.h"
#include "kernels/rows/rms_norm.h"
#include "kernels/rows/row_lanes.h"

namespace clover::kernels::cpu {
namespace {

template <class T>
void rms_norm_rows(const float* x, const float* weight, float eps, int64_t width, T* out, int64_t begin,
                   int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* row = x + r * width;
    const float mean = dot(row, row, width) / static_cast<float>(width);
    const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
    fill_row(out + r * width, width, [&](auto load) { return load(row) * inverse * load(weight); });
  }
}

void rms_norm(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
              int64_t begin, int64_t end) {
  switch (element) {
    case Element::fp32:
      return rms_norm_rows(x, weight, eps, width, static_cast<float*>(out), begin, end);
    case Element::bf16:
      return rms_norm_rows(x, weight, eps, width, static_cast<Bf16*>(out), begin, end);
    case Element::fp16:
      return rms_norm_rows(x, weight, eps, width, static_cast<Fp16*>(out), begin, end);
  }
}

}  // namespace

template <>
const NormLoops LoopsOf<NormLoops, CLOVER_FAMILY>::loops{rms_norm};

}  // namespace clover::kernels::cpu
