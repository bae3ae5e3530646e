#include "kernels/cpu.h"
#include "kernels/cpu/cpu_loops.h"

namespace clover::kernels::cpu {

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out) {
  norm_rows(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), static_cast<float>(eps), x.size(1),
            out.mutable_data_ptr(), element_of(out.scalar_type()), x.size(0));
}

}  // namespace clover::kernels::cpu
