#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Finds a row of the paged KV cache [pages, Hkv, page_size, d], where a row is the d numbers of one slot and
// one key/value head. Shared by CPU code, CUDA and all instruction families. In an anonymous namespace, so
// that code compiled for one instruction family is never linked into another (kernels/cpu/family.h).
namespace clover::kernels {
namespace {

/// A slot's page, and its index within the page, below page_size.
struct PagePlace {
  uint32_t page, within_page;
};

/// For a slot number of the whole cache. Divides in 32 bits, which is faster; a cache of 2^32 slots would
/// take hundreds of gigabytes for each layer.
CLOVER_HOST_DEVICE PagePlace place_of(int64_t slot, int64_t page_size) {
  const uint32_t index = static_cast<uint32_t>(slot), size = static_cast<uint32_t>(page_size);
  const uint32_t page = index / size;
  return {page, index - page * size};
}

/// For slot number `slot` of a sequence. `pages` is the sequence's row of the page table: the number of each
/// of its pages in the cache.
CLOVER_HOST_DEVICE PagePlace place_of(int64_t slot, int64_t page_size, const int32_t* pages) {
  const PagePlace in_sequence = place_of(slot, page_size);
  return {static_cast<uint32_t>(pages[in_sequence.page]), in_sequence.within_page};
}

/// The index of the row among all rows of the cache. Call: RopeCall, AttentionCall or MoveCall, which have
/// the members kv_heads and page_size.
template <class Call>
CLOVER_HOST_DEVICE int64_t cache_row(const Call& call, const PagePlace& place, int64_t head) {
  return (int64_t{place.page} * call.kv_heads + head) * call.page_size + place.within_page;
}

}  // namespace
}  // namespace clover::kernels
