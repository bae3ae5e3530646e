#include "kernels/cpu.h"
#include "kernels/cpu_loops.h"

namespace clover::kernels::cpu {

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  const CpuBodies& body = bodies();
  const int64_t width = x.size(1);
  const float* from = x.const_data_ptr<float>();
  const float* scale = weight.const_data_ptr<float>();
  void* to = out.mutable_data_ptr();
  const Element element = element_of(out.scalar_type());
  for_rows(x.size(0), width, [&](int64_t begin, int64_t end) {
    body.rms_norm(from, scale, static_cast<float>(eps), width, to, element, begin, end);
  });
}

}  // namespace clover::kernels::cpu
