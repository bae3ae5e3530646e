#pragma once

#include <cstdint>
#include <string_view>

namespace clover::data {

/// 64-bit checksum of bytes, computed by all threads; `state` is the checksum of the bytes before them.  The
/// result does not depend on the number of threads.  It detects every change of a single byte, and larger
/// accidental changes with near certainty; it is no protection against deliberate ones.
uint64_t checksum(std::string_view bytes, uint64_t state = 0);

}  // namespace clover::data
