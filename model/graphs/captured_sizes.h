#pragma once

#include <cstdint>

// The sizes at which work is captured as CUDA graphs, padded to them: few enough to be met again.
namespace clover::model {

/// Work of more rows takes longer than its kernels' launches do, and is not captured.
constexpr int64_t most_captured_rows = 256;

/// The least size captured that holds so many rows, at most most_captured_rows.
int64_t captured_rows(int64_t rows);

/// The least size captured that holds so many pages of a sequence.
int64_t captured_pages(int64_t pages);

/// The least power of two that is neither below `count` nor below `least`, itself one.
int64_t power_of_two(int64_t count, int64_t least);

}  // namespace clover::model
