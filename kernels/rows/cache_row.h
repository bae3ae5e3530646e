#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Where a slot of a head is in a paged cache [pages, Hkv, page_size, d]: one answer for the CPU, the GPU and
// every instruction family. None of their code may be linked into another's, hence a copy in each file.
namespace clover::kernels {
namespace {

/// A slot's page, and its row within the page.
struct PagePlace {
  uint32_t page, within;
};

/// Slots fit in 32 bits, whose division is fast everywhere: a cache of 2^32 slots takes hundreds of gigabytes
/// a layer.
CLOVER_HOST_DEVICE PagePlace place_of(int64_t slot, int64_t page_size) {
  const uint32_t narrow = static_cast<uint32_t>(slot), size = static_cast<uint32_t>(page_size);
  const uint32_t page = narrow / size;
  return {page, narrow - page * size};
}

/// The same for a slot of a sequence, whose row of the page table is `pages`.
CLOVER_HOST_DEVICE PagePlace place_of(int64_t slot, int64_t page_size, const int32_t* pages) {
  const PagePlace own = place_of(slot, page_size);
  return {static_cast<uint32_t>(pages[own.page]), own.within};
}

/// The index of the slot's row of d elements among all rows of the cache. Call: RopeCall, AttentionCall or
/// MoveCall.
template <class Call>
CLOVER_HOST_DEVICE int64_t cache_row(const Call& call, const PagePlace& place, int64_t head) {
  return (int64_t{place.page} * call.kv_heads + head) * call.page_size + place.within;
}

}  // namespace
}  // namespace clover::kernels
