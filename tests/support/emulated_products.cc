#include <cstring>

#include "tests/support/emulated_threads.h"
#include "tests/support/tensor_core_sum.h"

// Products of tensor cores: of a warp, at once, and of four, when they are waited for.
namespace clover::test {
int warpgroup_bits_missing = 0;  // declared in stand_in_device.h
}

namespace clover::kernels::cuda::emulation {
namespace {

constexpr int bits_of_sm_90 = 25;

void multiply_add_cut_off(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                          const Number& number, int bits) {
  const uint32_t words[] = {a[0], a[1], a[2], a[3], b0, b1};
  float mine[12];
  for (int i = 0; i < 12; ++i) mine[i] = number.to_float(static_cast<uint16_t>(words[i / 2] >> i % 2 * 16));
  const unsigned char* brought = exchange(mine, sizeof mine);
  const unsigned lane = running->place.thread.x % lanes, group = lane / 4, in_group = lane % 4;
  // Of the four lanes that hold a line: their words number `first` and `first + next`.
  const auto read = [&](unsigned line, unsigned first, unsigned next) {
    Line read;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned word = first + k / 8 * next;
      std::memcpy(&read.x[k], brought + 64 * (line * 4 + k % 8 / 2) + 4 * (2 * word + k % 2), sizeof(float));
      read.exponent[k] = exponent_of(read.x[k], number.least_exponent);
    }
    return read;
  };
  const Line rows[] = {read(group, 0, 2), read(group, 1, 2)},
             columns[] = {read(2 * in_group, 4, 1), read(2 * in_group + 1, 4, 1)};
  for (unsigned i = 0; i < 4; ++i) d[i] = sum_at_once(d[i], rows[i / 2], columns[i % 2], bits);
}

/// A number of a box, which lies as copy_box leaves it.
template <class T>
T of_box(uintptr_t address) {
  T bits;
  std::memcpy(&bits, reinterpret_cast<const void*>(address ^ (address >> 7 & 7) << 4), sizeof bits);
  return bits;
}

/// The warp's 16 rows of a left operand of 64.
void read_left(uintptr_t box, uint32_t (&a)[4]) {
  const unsigned lane = running->place.thread.x % lanes, warp = running->place.thread.x / lanes % 4;
  for (unsigned i = 0; i < 4; ++i)
    a[i] = of_box<uint32_t>(box + (16 * warp + lane / 4 + i % 2 * 8) * 128 + lane % 4 * 4 + i / 2 * 16);
}

/// A right operand's word number `word`: eight columns are rows of the box, or columns.
uint32_t read_right(const Product& product, int tile, unsigned word) {
  const unsigned lane = running->place.thread.x % lanes;
  if (!product.down)
    return of_box<uint32_t>(product.b + (tile * 8 + lane / 4) * 128 + lane % 4 * 4 + word * 16);
  const uintptr_t first = product.b + (lane % 4 * 2 + word * 8) * 128 + (tile * 8 + lane / 4) * 2;
  return of_box<uint16_t>(first) | static_cast<uint32_t>(of_box<uint16_t>(first + 128)) << 16;
}

void make(const Product& product) {
  uint32_t a[4];
  if (product.a != nullptr) {
    std::memcpy(a, *product.a, sizeof a);
  } else {
    read_left(product.left, a);
  }
  for (int tile = 0; tile < product.tiles; ++tile) {
    if (!product.adds) std::memset(product.d[tile], 0, sizeof product.d[tile]);
    multiply_add_cut_off(product.d[tile], a, read_right(product, tile, 0), read_right(product, tile, 1),
                         product.number, bits_of_sm_90 - test::warpgroup_bits_missing);
  }
}

void begin(const Product& product) {
  if (!running->multiplies) fail("a product whose sums may not be as the threads have left them");
  if (running->products.empty()) running->products.emplace_back();
  running->products.back().push_back(product);
}

}  // namespace

void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Number& number) {
  multiply_add_cut_off(d, a, b0, b1, number, bits_of_sm_90);
}

void begin_products() {
  running->multiplies = true;
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
  running->multiplies = false;
  if (running->products.empty()) running->products.emplace_back();
  running->products.emplace_back();
}

void wait_for_products(int pending) {
  auto& groups = running->products;
  while (static_cast<int>(groups.size()) > pending + 1) {
    for (const Product& product : groups.front()) make(product);
    groups.erase(groups.begin());
  }
}

}  // namespace clover::kernels::cuda::emulation
