#include "kernels/cpu.h"
#include "kernels/cpu_loops.h"

namespace clover::kernels::cpu {

void add_silu_(at::Tensor& z, const at::Tensor& a) {
  const CpuBodies& body = bodies();
  float* to = z.mutable_data_ptr<float>();
  const float* from = a.const_data_ptr<float>();
  for_rows(z.numel(), 4, [&](int64_t begin, int64_t end) { body.add_silu(to, from, begin, end); });
}

void add_gated_(at::Tensor& s, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t groups,
                double eps) {
  const CpuBodies& body = bodies();
  const int64_t width = s.size(1);
  float* to = s.mutable_data_ptr<float>();
  const float *query = q.const_data_ptr<float>(), *key = k.const_data_ptr<float>(),
              *value = v.const_data_ptr<float>();
  for_rows(s.size(0), 6 * width, [&](int64_t begin, int64_t end) {
    body.add_gated(to, query, key, value, width, groups, static_cast<float>(eps), begin, end);
  });
}

}  // namespace clover::kernels::cpu
