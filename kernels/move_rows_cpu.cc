#include <cstring>

#include "kernels/cpu.h"

namespace clover::kernels::cpu {

void move_rows(at::Tensor& cache, const at::Tensor& moves) {
  const int64_t count = moves.size(1), heads = cache.size(2), page_size = cache.size(3),
                row_bytes = cache.size(4) * cache.element_size(), page_bytes = heads * page_size * row_bytes;
  const int64_t *from = moves.const_data_ptr<int64_t>(), *to = from + count;
  char* part = static_cast<char*>(cache.mutable_data_ptr());
  const auto row = [&](int64_t slot, int64_t head) {
    return part + slot / page_size * page_bytes + (head * page_size + slot % page_size) * row_bytes;
  };
  for (int64_t p = 0; p < cache.size(0); ++p, part += cache.size(1) * page_bytes) {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t head = 0; from[i] >= 0 && head < heads; ++head)
        std::memcpy(row(to[i], head), row(from[i], head), row_bytes);
    }
  }
}

}  // namespace clover::kernels::cpu
