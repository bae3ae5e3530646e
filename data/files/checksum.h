#pragma once

#include <cstdint>
#include <string_view>

namespace clover::data {

/// 64-bit checksum of `bytes`, computed by all threads.  `state`: the checksum of the bytes before them, if
/// the data comes in several calls.  The same data cut into other calls has another checksum; the number of
/// threads does not matter.  It detects every change of a single byte, and larger accidental changes with
/// near certainty.  It does not protect against deliberate changes.
uint64_t checksum(std::string_view bytes, uint64_t state = 0);

}  // namespace clover::data
