#include "kernels/cpu.h"
#include "kernels/cpu/cpu_loops.h"

namespace clover::kernels::cpu {

void add_silu_(at::Tensor& z, const at::Tensor& a) {
  const CpuBodies& body = bodies();
  float* to = z.mutable_data_ptr<float>();
  const float* from = a.const_data_ptr<float>();
  for_rows(z.numel(), 4, [&](int64_t begin, int64_t end) { body.add_silu(to, from, begin, end); });
}

void add_gated_(at::Tensor& out, const at::Tensor& q, const at::Tensor& kv, int64_t groups, double eps,
                GateActivation activation) {
  const CpuBodies& body = bodies();
  const int64_t width = out.size(1);
  float* to = out.mutable_data_ptr<float>();
  const float *query = q.const_data_ptr<float>(), *key = kv.const_data_ptr<float>();
  for_rows(out.size(0), 6 * width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* keys = key + 2 * row * width;
      body.add_gated(to + row * width, query + row * width, keys, keys + width, width, groups,
                     static_cast<float>(eps), activation == GateActivation::silu, 0, 1);
    }
  });
}

}  // namespace clover::kernels::cpu
