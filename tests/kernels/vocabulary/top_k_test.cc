#include "kernels/vocabulary/top_k.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

const float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Indices of a whole row, best first, by the rules of the contract.
std::vector<int64_t> ranking(const at::Tensor& row) {
  std::vector<float> values(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
  for (float& value : values) value = std::isnan(value) ? -infinite : value;
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  return order;
}

/// Rows that have led top-k's astray: ties everywhere, sorted both ways, infinities, nothing but NaN,
/// zeros of both signs.
at::Tensor awkward_rows(int64_t width) {
  std::vector<at::Tensor> rows = {at::randn({width}),
                                  at::randn({width}).mul(3).round(),
                                  at::arange(width).to(at::kFloat),
                                  at::arange(width).neg().to(at::kFloat),
                                  at::zeros({width}),
                                  at::full({width}, not_a_number),
                                  at::full({width}, -infinite)};
  at::Tensor spoiled = at::randn({width});
  for (int64_t i = 0; i < width; i += 3) spoiled[i] = not_a_number;
  spoiled[width / 2] = infinite;
  spoiled[width - 1] = infinite;
  rows.push_back(spoiled);
  at::Tensor signs = at::zeros({width});
  signs.slice(0, 0, width, 2).fill_(-0.0f);
  rows.push_back(signs);
  return at::stack(rows);
}

TEST(TopK, IsAStableSort) {
  at::manual_seed(1);
  on_every_path([] {
    for (int64_t width : {1, 5, 63, 64, 65, 1000, 2047, 2048, 2049, 5003}) {
      const at::Tensor logits = awkward_rows(width);
      for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{10}, int64_t{64}, int64_t{65}, width / 2, width}) {
        if (k < 1 || k > width || (here::emulated() && k > 65)) continue;
        const auto [values, indices] = here::top_k(logits, k);
        for (int64_t r = 0; r < logits.size(0); ++r) {
          const std::vector<int64_t> expected = ranking(logits[r]);
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(indices[r][i].item<int64_t>(), expected[i])
                << "row " << r << ", " << k << " of " << width;
            const float value = logits[r][expected[i]].item<float>();
            ASSERT_EQ(values[r][i].item<float>(), std::isnan(value) ? -infinite : value);
          }
        }
      }
    }
  });
}

// The best few may lie anywhere: all together, all apart, at both ends.
TEST(TopK, FindsTheBestOfLongRows) {
  on_every_path([] {
    for (int64_t width : {int64_t{70'001}, (int64_t{2} << 20) + 1}) {
      at::Tensor logits = at::zeros({1, width});
      for (int64_t index : {int64_t{0}, width / 2, width / 2 + 1, width - 4000, width - 1})
        logits[0][index] = static_cast<float>(1 + index % 3);
      const std::vector<int64_t> expected = ranking(logits[0]);
      const at::Tensor indices = std::get<1>(here::top_k(logits, 7));
      for (int64_t i = 0; i < 7; ++i)
        EXPECT_EQ(indices[0][i].item<int64_t>(), expected[i]) << i << " of " << width;
      EXPECT_EQ(here::arg_max(logits)[0].item<int64_t>(), expected[0]) << width;
    }
  });
}

TEST(ArgMax, IsTheFirstOfAStableSort) {
  at::manual_seed(2);
  on_every_path([] {
    for (int64_t width : {1, 7, 8, 31, 32, 33, 2048, 4097, 70000}) {
      const at::Tensor logits = awkward_rows(width), best = here::arg_max(logits);
      for (int64_t r = 0; r < logits.size(0); ++r) {
        const int64_t first = ranking(logits[r])[0];
        const bool any = logits[r][first].item<float>() > -infinite;
        ASSERT_EQ(best[r].item<int64_t>(), any ? first : -1) << "row " << r << " of width " << width;
      }
    }
  });
}

TEST(LogSumExp, IsThePlainLoop) {
  at::manual_seed(3);
  on_every_path([] {
    for (int64_t width : {1, 3, 8, 33, 1000, 2047, 2048, 2049, 70000}) {
      const at::Tensor logits = at::randn({3, width}) * 8 + 40, out = here::log_sum_exp(logits);
      for (int64_t r = 0; r < 3; ++r) {
        double sum = 0;
        const float* row = logits[r].const_data_ptr<float>();
        for (int64_t i = 0; i < width; ++i) sum += std::exp(static_cast<double>(row[i]));
        ASSERT_NEAR(out[r].item<double>(), std::log(sum), 2e-5);
      }
    }
  });
}

TEST(TopKAndLogSum, IsTheSameBitsAsBoth) {
  on_every_path([] {
    for (int64_t width : {3, 2048, 2049, 70000}) {
      for (int64_t k : {1, 3, 70}) {
        if (k > width || (k == 70 && width > 3000)) continue;
        at::Tensor logits = at::randn({3, width});
        logits[1].fill_(-std::numeric_limits<float>::infinity());
        const auto [values, indices, sums] = here::top_k_and_log_sum(logits, k);
        const auto [expected, places] = here::top_k(logits, k);
        EXPECT_TRUE(same_bits(values, expected)) << width << ", " << k;
        EXPECT_TRUE(indices.equal(places)) << width << ", " << k;
        const at::Tensor names = at::arange(width, at::kLong) * 3 + 1;
        EXPECT_TRUE(std::get<1>(here::top_k_and_log_sum(logits, k, names)).equal(places * 3 + 1));
        EXPECT_TRUE(same_bits(sums, here::log_sum_exp(logits))) << width << ", " << k;
      }
    }
  });
}

TEST(LogSumExp, TreatsInfinities) {
  on_every_path([] {
    const at::Tensor out = here::log_sum_exp(
        at::tensor({-infinite, -infinite, -infinite, 1.0f, infinite, 2.0f, 0.5f, -infinite, -infinite})
            .reshape({3, 3}));
    EXPECT_EQ(out[0].item<float>(), -infinite);
    EXPECT_EQ(out[1].item<float>(), infinite);
    EXPECT_EQ(out[2].item<float>(), 0.5f);
  });
}

// Of a long row's parts, some may have no finite value.
TEST(LogSumExp, TreatsPartsWithoutANumber) {
  on_every_path([] {
    at::Tensor logits = at::full({3, 5000}, -infinite);
    logits.slice(1, 3000, 3001).fill_(1.5f);
    logits[1].slice(0, 0, 2500).fill_(not_a_number);
    logits[2][4999] = infinite;
    const at::Tensor out = here::log_sum_exp(logits);
    EXPECT_EQ(out[0].item<float>(), 1.5f);
    EXPECT_TRUE(std::isnan(out[1].item<float>()));
    EXPECT_EQ(out[2].item<float>(), infinite);
  });
}

TEST(Vocabulary, ARowDoesNotDependOnItsNeighboursThreadsOrPath) {
  const at::Tensor logits = at::randn({17, 3001}) * 4;
  const at::Tensor mass = here::log_sum_exp(logits), best = here::arg_max(logits);
  const auto [values, indices] = here::top_k(logits, 13);
  on_every_path([&] {
    for (int threads : {1, 2}) {
      with_threads(threads, [&] {
        EXPECT_TRUE(same_bits(here::log_sum_exp(logits), mass));
        EXPECT_TRUE(same_bits(here::arg_max(logits), best));
        EXPECT_TRUE(same_bits(std::get<1>(here::top_k(logits, 13)), indices));
      });
    }
    for (int64_t r = 0; r < 17; ++r) {
      const at::Tensor alone = logits.slice(0, r, r + 1);
      EXPECT_TRUE(same_bits(here::log_sum_exp(alone), mass.slice(0, r, r + 1)));
      EXPECT_TRUE(same_bits(std::get<0>(here::top_k(alone, 13)), values.slice(0, r, r + 1)));
    }
  });
}

TEST(Vocabulary, NoRowsAreNoWorkAndMistakesAreNamed) {
  EXPECT_EQ(here::arg_max(at::empty({0, 5})).sizes(), (at::IntArrayRef{0}));
  EXPECT_EQ(std::get<0>(here::top_k(at::empty({0, 5}), 2)).sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_NE(error_of([] {
              here::top_k(at::ones({1, 5}), 6);
            }).find("k is 6, expected 1 to 5"),
            std::string::npos);
  EXPECT_NE(error_of([] { here::top_k(at::ones({1, 5}), 0); }).find("k is 0"), std::string::npos);
  EXPECT_NE(error_of([] { here::arg_max(at::ones({1, 0})); }).find("no columns"), std::string::npos);
  EXPECT_NE(error_of([] {
              here::log_sum_exp(at::ones({1, 5}, at::kHalf));
            }).find("Half, expected Float"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
