#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clover::data {

/// Stable 64-bit FNV-1a of bytes, continued from `state`; the same on every machine.  Not for adversaries.
constexpr uint64_t fnv_start = 14695981039346656037ull;
uint64_t fnv1a(std::string_view bytes, uint64_t state = fnv_start);

/// XXH64 of bytes, for gigabytes: about ten a second and core where FNV-1a reads one.  Not for adversaries.
uint64_t xxh64(std::string_view bytes, uint64_t seed);

/// 16 lower-case hexadecimal digits.
std::string hex(uint64_t hash);

}  // namespace clover::data
