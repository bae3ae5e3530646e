#include <cstring>

#include "tests/support/emulated_threads.h"
#include "tests/support/warp_products.h"

// Products of tensor cores: those of one warp (mma) are computed at once, those of a warpgroup of four warps
// (wgmma) when they are waited for.
namespace clover::test {
int warpgroup_bits_missing = 0;  // declared in stand_in_device.h
}

namespace clover::kernels::cuda::emulation {
namespace {

constexpr int sum_bits_sm_90 = 25;  // argument `bits` of multiply_add_warp

/// A lane's part of the operands of multiply_add.
struct Operands {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};

/// Reads an element of a swizzled box; `address`: where it would be without the swizzle.
template <class T>
T read_swizzled(uintptr_t address) {
  T bits;
  std::memcpy(&bits, reinterpret_cast<const void*>(address ^ (address >> 7 & 7) << 4), sizeof bits);
  return bits;
}

/// Reads a lane's part of the left operand [64, 16] at `box`, of which each warp has 16 rows.
void read_left(uintptr_t box, unsigned lane, uint32_t (&a)[4]) {
  const unsigned warp = current_thread->indices.thread.x / lanes % 4;
  for (unsigned i = 0; i < 4; ++i)
    a[i] =
        read_swizzled<uint32_t>(box + (16 * warp + lane / 4 + i % 2 * 8) * 128 + lane % 4 * 4 + i / 2 * 16);
}

/// A lane's word number `word` (0 or 1) of the right operand: two neighbours along K, in column 8 * tile +
/// lane / 4.
uint32_t read_right(const Product& product, int tile, unsigned lane, unsigned word) {
  if (!product.b_is_k_by_n)
    return read_swizzled<uint32_t>(product.b + (tile * 8 + lane / 4) * 128 + lane % 4 * 4 + word * 16);
  const uintptr_t first = product.b + (lane % 4 * 2 + word * 8) * 128 + (tile * 8 + lane / 4) * 2;
  return read_swizzled<uint16_t>(first) | static_cast<uint32_t>(read_swizzled<uint16_t>(first + 128)) << 16;
}

/// Computes a product.  A collective: lane 0 computes it for all lanes.
void compute(const Product& mine) {
  const unsigned char* const lane_values = exchange(&mine);
  if (current_thread->lane != 0) return;
  const Product* products[lanes];
  LeftOperand left;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    std::memcpy(&products[lane], lane_values + bytes_per_lane * lane, sizeof products[lane]);
    const Product& product = *products[lane];
    if (product.b != mine.b || product.left != mine.left || product.tiles != mine.tiles)
      fail("a product of which the lanes of a warp name different boxes");
    if (product.a != nullptr) {
      std::memcpy(left.words[lane], *product.a, sizeof left.words[lane]);
    } else {
      read_left(product.left, lane, left.words[lane]);
    }
  }
  for (int tile = 0; tile < mine.tiles; ++tile) {
    float* d[lanes];
    RightOperand right;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      d[lane] = products[lane]->d[tile];
      if (!mine.adds) std::memset(d[lane], 0, sizeof products[lane]->d[tile]);
      for (unsigned word = 0; word < 2; ++word) right.words[lane][word] = read_right(mine, tile, lane, word);
    }
    multiply_add_warp(d, left, right, mine.format, sum_bits_sm_90 - test::warpgroup_bits_missing);
  }
}

void begin_product(const Product& product) {
  if (!self().may_begin_products) fail("a product whose sums may not be as the threads have left them");
  self().products.add(product);
}

}  // namespace

/// A collective: lane 0 multiplies for all lanes.
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  const NumberFormat& format) {
  const unsigned char* const lane_values = exchange(Operands{d, a, {b0, b1}});
  if (current_thread->lane != 0) return;
  float* d_of_lanes[lanes];
  LeftOperand left;
  RightOperand right;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Operands of_lane;
    std::memcpy(&of_lane, lane_values + bytes_per_lane * lane, sizeof of_lane);
    d_of_lanes[lane] = of_lane.d;
    std::memcpy(left.words[lane], of_lane.a, sizeof left.words[lane]);
    std::memcpy(right.words[lane], of_lane.b, sizeof right.words[lane]);
  }
  multiply_add_warp(d_of_lanes, left, right, format, sum_bits_sm_90);
}

void begin_products() {
  self().may_begin_products = true;
}

void begin_multiply(float (*d)[4], const uint32_t (&a)[4], uintptr_t b, int tiles,
                    const NumberFormat& format) {
  begin_product({d, &a, b, tiles, format});
}

void begin_multiply_boxes(float (*d)[4], uintptr_t left, uintptr_t right, bool adds,
                          const NumberFormat& format) {
  begin_product({d, nullptr, right, 8, format, left, adds});
}

void begin_multiply_by_box(float (*d)[4], const uint32_t (&a)[4], uintptr_t right, bool adds,
                           const NumberFormat& format) {
  begin_product({d, &a, right, 8, format, 0, adds, true});
}

void end_product_group() {
  self().may_begin_products = false;
  self().products.end_group();
}

void wait_for_products(int pending) {
  self().products.wait(pending, compute);
}

}  // namespace clover::kernels::cuda::emulation
