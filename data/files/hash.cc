#include "data/files/hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace clover::data {
namespace {

// The primes and rotations of XXH64 are those of the xxHash specification.
constexpr uint64_t prime_1 = 0x9E3779B185EBCA87, prime_2 = 0xC2B2AE3D27D4EB4F, prime_3 = 0x165667B19E3779F9,
                   prime_4 = 0x85EBCA77C2B2AE63, prime_5 = 0x27D4EB2F165667C5;

template <class Word>
uint64_t word_at(const char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * prime_2, 31) * prime_1;
}

/// Mixes `tail`, the last bytes after all whole 32-byte stripes, into `hash` in words of 8, 4 and 1 bytes.
uint64_t add_tail(uint64_t hash, std::string_view tail) {
  const char *next = tail.data(), *end = next + tail.size();
  for (; end - next >= 8; next += 8)
    hash = std::rotl(hash ^ round(0, word_at<uint64_t>(next)), 27) * prime_1 + prime_4;
  if (end - next >= 4) {
    hash = std::rotl(hash ^ (word_at<uint32_t>(next) * prime_1), 23) * prime_2 + prime_3;
    next += 4;
  }
  for (; next < end; ++next) hash = std::rotl(hash ^ (word_at<uint8_t>(next) * prime_5), 11) * prime_1;
  return hash;
}

}  // namespace

uint64_t fnv1a(std::string_view bytes, uint64_t state) {
  constexpr uint64_t prime = 1099511628211ull;
  for (char c : bytes) {
    state ^= static_cast<unsigned char>(c);
    state *= prime;
  }
  return state;
}

uint64_t xxh64(std::string_view bytes, uint64_t seed) {
  constexpr size_t stripe = 32;  // bytes
  uint64_t hash = seed + prime_5;
  size_t offset = 0;  // bytes hashed so far
  if (bytes.size() >= stripe) {
    std::array<uint64_t, 4> lanes{seed + prime_1 + prime_2, seed + prime_2, seed, seed - prime_1};
    for (; bytes.size() - offset >= stripe; offset += stripe)
      for (size_t i = 0; i < lanes.size(); ++i)
        lanes[i] = round(lanes[i], word_at<uint64_t>(bytes.data() + offset + 8 * i));
    hash =
        std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * prime_1 + prime_4;
  }
  hash = add_tail(hash + bytes.size(), bytes.substr(offset));
  hash = (hash ^ (hash >> 33)) * prime_2;
  hash = (hash ^ (hash >> 29)) * prime_3;
  return hash ^ (hash >> 32);
}

uint64_t mix_bits(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 33;
}

std::string hex(uint64_t hash) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace clover::data
