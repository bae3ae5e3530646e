#include <cstring>

#include "kernels/rows/cache_row.h"
#include "kernels/rows/move_rows.h"

namespace clover::kernels {

void run_on_cpu(const MoveCall& call) {
  const int64_t *from = call.moves, *to = from + call.count;
  char* part = static_cast<char*>(call.cache);
  const auto row = [&](int64_t slot, int64_t head) {
    return part + cache_row(call, place_of(slot, call.page_size), head) * call.row_bytes;
  };
  const int64_t part_bytes = call.pages * call.kv_heads * call.page_size * call.row_bytes;
  for (int64_t p = 0; p < call.parts; ++p, part += part_bytes) {
    for (int64_t i = 0; i < call.count; ++i) {
      if (from[i] < 0) continue;
      for (int64_t head = 0; head < call.kv_heads; ++head)
        std::memcpy(row(to[i], head), row(from[i], head), call.row_bytes);
    }
  }
}

}  // namespace clover::kernels
