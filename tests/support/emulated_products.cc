#include <cstring>

#include "tests/support/emulated_threads.h"
#include "tests/support/warp_products.h"

// Products of tensor cores: of a warp, at once, and of four, when they are waited for.
namespace clover::test {
int warpgroup_bits_missing = 0;  // declared in stand_in_device.h
}

namespace clover::kernels::cuda::emulation {
namespace {

constexpr int bits_of_sm_90 = 25;

/// What a lane brings to a product of its warp.
struct Operands {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};

/// A number of a box, which lies as copy_box leaves it.
template <class T>
T of_box(uintptr_t address) {
  T bits;
  std::memcpy(&bits, reinterpret_cast<const void*>(address ^ (address >> 7 & 7) << 4), sizeof bits);
  return bits;
}

/// A lane's words of the warp's 16 rows of a left operand of 64.
void read_left(uintptr_t box, unsigned lane, uint32_t (&a)[4]) {
  const unsigned warp = running->place.thread.x / lanes % 4;
  for (unsigned i = 0; i < 4; ++i)
    a[i] = of_box<uint32_t>(box + (16 * warp + lane / 4 + i % 2 * 8) * 128 + lane % 4 * 4 + i / 2 * 16);
}

/// A lane's word number `word` of a right operand: eight columns are rows of the box, or columns.
uint32_t read_right(const Product& product, int tile, unsigned lane, unsigned word) {
  if (!product.down)
    return of_box<uint32_t>(product.b + (tile * 8 + lane / 4) * 128 + lane % 4 * 4 + word * 16);
  const uintptr_t first = product.b + (lane % 4 * 2 + word * 8) * 128 + (tile * 8 + lane / 4) * 2;
  return of_box<uint16_t>(first) | static_cast<uint32_t>(of_box<uint16_t>(first + 128)) << 16;
}

/// The first lane makes the product for all, once they have come.
void make(const Product& mine) {
  const unsigned char* const brought = exchange(&mine);
  if (running->lane != 0) return;
  const Product* products[lanes];
  LeftOperand left;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    std::memcpy(&products[lane], brought + bytes_a_lane * lane, sizeof products[lane]);
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
    multiply_add_warp(d, left, right, mine.number, bits_of_sm_90 - test::warpgroup_bits_missing);
  }
}

void begin(const Product& product) {
  if (!self().multiplies) fail("a product whose sums may not be as the threads have left them");
  self().products.add(product);
}

}  // namespace

/// The first lane multiplies for all, once they have come.
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Number& number) {
  const unsigned char* const brought = exchange(Operands{d, a, {b0, b1}});
  if (running->lane != 0) return;
  float* d_of_lanes[lanes];
  LeftOperand left;
  RightOperand right;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    Operands of_lane;
    std::memcpy(&of_lane, brought + bytes_a_lane * lane, sizeof of_lane);
    d_of_lanes[lane] = of_lane.d;
    std::memcpy(left.words[lane], of_lane.a, sizeof left.words[lane]);
    std::memcpy(right.words[lane], of_lane.b, sizeof right.words[lane]);
  }
  multiply_add_warp(d_of_lanes, left, right, number, bits_of_sm_90);
}

void begin_products() {
  self().multiplies = true;
}

void begin_multiply(float (*d)[4], const uint32_t (&a)[4], uintptr_t b, int tiles, const Number& number) {
  begin({d, &a, b, tiles, number});
}

void begin_multiply_boxes(float (*d)[4], uintptr_t left, uintptr_t right, bool adds, const Number& number) {
  begin({d, nullptr, right, 8, number, left, adds});
}

void begin_multiply_down(float (*d)[4], const uint32_t (&a)[4], uintptr_t right, bool adds,
                         const Number& number) {
  begin({d, &a, right, 8, number, 0, adds, true});
}

void end_product_group() {
  self().multiplies = false;
  self().products.end_group();
}

void wait_for_products(int pending) {
  self().products.wait(pending, make);
}

}  // namespace clover::kernels::cuda::emulation
