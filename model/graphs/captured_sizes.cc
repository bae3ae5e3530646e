#include "model/graphs/captured_sizes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>

namespace clover::model {
namespace {

// 5, 20, 80 and 240 are trees of five rows for 1, 4, 16 and 48 sequences, the most frequent passes.
constexpr std::array<int64_t, 17> captured_row_counts{
    1, 2, 4, 5, 8, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 240, max_captured_rows};
constexpr int64_t min_captured_pages = 4;  // of 64 tokens; short texts share one shape

}  // namespace

int64_t padded_rows(int64_t rows) {
  TORCH_CHECK(rows <= captured_row_counts.back(), "padded_rows: expected at most ",
              captured_row_counts.back(), " rows, found ", rows);
  return *std::ranges::lower_bound(captured_row_counts, rows);
}

int64_t padded_pages(int64_t pages) {
  return next_power_of_two(pages, min_captured_pages);
}

int64_t next_power_of_two(int64_t count, int64_t minimum) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, minimum))));
}

}  // namespace clover::model
