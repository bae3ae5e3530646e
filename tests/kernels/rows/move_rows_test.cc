#include "kernels/rows/move_rows.h"

#include <ATen/ATen.h>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

constexpr int64_t page_size = 4;

/// All heads of a slot, in every part of a cache [parts, pages, heads, page_size, d].
at::Tensor at_slot(const at::Tensor& cache, int64_t slot) {
  return cache.select(1, slot / page_size).select(2, slot % page_size);
}

at::Tensor moved(const at::Tensor& cache, const at::Tensor& moves) {
  at::Tensor to = cache.clone();
  here::in_place(to, [&](at::Tensor& placed) { move_rows(placed, here::place(moves)); });
  return to;
}

TEST(MoveRows, GroupsMoveTheirRowsInOrder) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [heads, width] : {std::pair<int64_t, int64_t>{1, 8}, {3, 16}, {43, 48}}) {
      const at::Tensor cache = at::randn({3, 10, heads, page_size, width}).to(type);
      // A row takes the place of one that has just moved; of one group six, more than are read at once.
      const at::Tensor moves = at::tensor({7, 9, 30, 31, 33, 34, 36, 39, 12,  //
                                           6, 7, 29, 30, 31, 32, 33, 34, 11,  //
                                           4, 4, 9,  9,  9,  9,  9,  9,  0},
                                          at::kLong)
                                   .view({3, 9});
      at::Tensor expected = cache.clone();
      for (int64_t i = 0; i < moves.size(1); ++i)
        at_slot(expected, moves[1][i].item<int64_t>()).copy_(at_slot(expected, moves[0][i].item<int64_t>()));
      on_every_path([&, heads = heads, width = width] {
        EXPECT_TRUE(same_bits(moved(cache, moves), expected)) << type << " " << heads << " x " << width;
      });
    }
  }
}

// A GPU that finds out by itself what moves has room for all that might.
TEST(MoveRows, LeavesOutWhatComesFromNowhere) {
  const at::Tensor cache = at::randn({2, 3, 2, page_size, 8});
  const at::Tensor moves =
      at::tensor({-1, 5, -1, -1, -1, 9, 3, 4, 5, 8, 9, 10, 2, 2, 2, 7, 7, 7}, at::kLong).view({3, 6});
  at::Tensor expected = cache.clone();
  at_slot(expected, 4).copy_(at_slot(cache, 5));
  at_slot(expected, 10).copy_(at_slot(cache, 9));
  on_every_path([&] { EXPECT_TRUE(same_bits(moved(cache, moves), expected)); });
}

TEST(MoveRows, NothingToMoveIsNoWorkAndMistakesAreTold) {
  at::Tensor cache = at::ones({2, 1, 1, page_size, 8});
  EXPECT_TRUE(same_bits(moved(cache, at::empty({3, 0}, at::kLong)), cache));
  EXPECT_NE(error_of([&] {
              moved(cache, at::zeros({2, 1}, at::kLong));
            }).find("moves has shape [2, 1]"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
