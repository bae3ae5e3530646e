#pragma once

#include <cstdint>

// The sizes that passes and drafts are padded to before they are captured as CUDA graphs.  There are few, so
// that a graph is often used again.
namespace clover::model {

/// Work of more rows is not captured: its kernels take longer than their launches, so a graph saves nothing.
constexpr int64_t max_captured_rows = 256;

/// The smallest captured number of rows that is at least `rows`, which is at most max_captured_rows.
int64_t padded_rows(int64_t rows);

/// The smallest captured number of pages of a sequence that is at least `pages`.
int64_t padded_pages(int64_t pages);

/// The smallest power of two that is at least `count` and at least `minimum`.
int64_t next_power_of_two(int64_t count, int64_t minimum);

}  // namespace clover::model
