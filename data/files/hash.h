#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clover::data {

/// 64-bit FNV-1a hash of bytes; `state` is the hash of the bytes before them.  The same on every machine. Not
/// secure against deliberate collisions.
constexpr uint64_t fnv1a_offset_basis = 14695981039346656037ull;
uint64_t fnv1a(std::string_view bytes, uint64_t state = fnv1a_offset_basis);

/// XXH64 hash of bytes: about 10 GB/s on one core, ten times FNV-1a.  Not secure against deliberate
/// collisions.
uint64_t xxh64(std::string_view bytes, uint64_t seed);

/// A hash as 16 lower-case hexadecimal digits.
std::string hex(uint64_t hash);

}  // namespace clover::data
