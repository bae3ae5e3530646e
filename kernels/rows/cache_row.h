#pragma once

#include <cstdint>

// Where a paged cache, [pages, Hkv, page_size, d], has a slot of a head: one answer for the host, the device
// and every instruction family, none of whose code may be linked into another's: hence a copy in each file.
namespace clover::kernels {
namespace {

#if defined(__CUDACC__)
#define CLOVER_ANYWHERE __host__ __device__ __forceinline__
#else
#define CLOVER_ANYWHERE inline __attribute__((always_inline))
#endif

/// A slot's page, and its place there.
struct PagePlace {
  uint32_t page, within;
};

/// Slots fit in 32 bits, whose division is quick everywhere: 2^32 of them take hundreds of gigabytes a layer.
CLOVER_ANYWHERE PagePlace place_of(int64_t slot, int64_t page_size) {
  const uint32_t narrow = static_cast<uint32_t>(slot), size = static_cast<uint32_t>(page_size);
  const uint32_t page = narrow / size;
  return {page, narrow - page * size};
}

/// The same for a slot of a sequence, whose row of the page table is `pages`.
CLOVER_ANYWHERE PagePlace place_of(int64_t slot, int64_t page_size, const int32_t* pages) {
  const PagePlace own = place_of(slot, page_size);
  return {static_cast<uint32_t>(pages[own.page]), own.within};
}

/// The number of the row of d elements among all of the cache's.  Call: RopeCall, AttentionCall, MoveCall.
template <class Call>
CLOVER_ANYWHERE int64_t cache_row(const Call& call, const PagePlace& place, int64_t head) {
  return (int64_t{place.page} * call.kv_heads + head) * call.page_size + place.within;
}

}  // namespace
}  // namespace clover::kernels
