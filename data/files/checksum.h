#pragma once

#include <cstdint>
#include <string_view>

namespace clover::data {

/// 64 bits of bytes, continued from `state`; the same for any number of threads.  One changed byte always
/// changes it, several all but surely do.  Against accidents, not adversaries.
uint64_t checksum(std::string_view bytes, uint64_t state = 0);

}  // namespace clover::data
