#include <cstring>

#include "kernels/cpu.h"

namespace clover::kernels::cpu {

void move_rows(at::Tensor& cache, const at::Tensor& moves) {
  const int64_t count = moves.size(1), row_bytes = cache.size(2) * cache.element_size();
  const int64_t *from = moves.const_data_ptr<int64_t>(), *to = from + count;
  char* part = static_cast<char*>(cache.mutable_data_ptr());
  for (int64_t p = 0; p < cache.size(0); ++p, part += cache.size(1) * row_bytes) {
    for (int64_t i = 0; i < count; ++i)
      if (from[i] >= 0) std::memcpy(part + to[i] * row_bytes, part + from[i] * row_bytes, row_bytes);
  }
}

}  // namespace clover::kernels::cpu
