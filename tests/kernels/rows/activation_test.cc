#include "kernels/rows/activation.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST(ExpF32, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  const auto compare = [&](float x) {
    const double expected = std::exp(static_cast<double>(x));
    const float nearest = static_cast<float>(expected);
    const double unit = std::nextafter(nearest, infinite) - nearest;
    worst = std::max(worst, std::abs(exp_f32(x) - expected) / unit);
  };
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(88.7f); bits += 1009)
    compare(std::bit_cast<float>(bits));
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(87.3f); bits += 1009)
    compare(-std::bit_cast<float>(bits));
  EXPECT_LE(worst, 2);
}

TEST(ExpF32, TreatsItsEdgesAsPromised) {
  on_every_path([] {
    EXPECT_EQ(exp_f32(0), 1);
    EXPECT_EQ(exp_f32(-0.0f), 1);
    EXPECT_EQ(exp_f32(-87.31f), 0);
    EXPECT_EQ(exp_f32(-infinite), 0);
    EXPECT_GT(exp_f32(-87.29f), 0);
    EXPECT_TRUE(std::isfinite(exp_f32(88.69f)));
    EXPECT_EQ(exp_f32(88.73f), infinite);
    EXPECT_EQ(exp_f32(infinite), infinite);
    EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
  });
}

TEST(AddSilu, AddsInPlaceWhateverTheSplit) {
  on_every_path([] {
    const at::Tensor a = at::randn({257, 131}), before = at::randn({257, 131});
    at::Tensor alone = before.clone(), together = before.clone();
    with_threads(1, [&] { here::add_silu_(alone, a); });
    with_threads(2, [&] { here::add_silu_(together, a); });
    EXPECT_TRUE(same_bits(alone, together));
    for (int64_t r : {0, 100, 256}) {
      at::Tensor row = before.slice(0, r, r + 1).clone();
      here::add_silu_(row, a.slice(0, r, r + 1));
      EXPECT_TRUE(same_bits(row, alone.slice(0, r, r + 1)));
    }
    for (int64_t i : {0, 60, 130}) {
      const double expected = before[5][i].item<double>() + silu(a[5][i].item<double>());
      EXPECT_NEAR(alone[5][i].item<double>(), expected, 1e-6);
    }
  });
}

TEST(AddGated, IsThePlainLoop) {
  on_every_path([] {
    for (auto [width, groups] : {std::pair{24, 1}, {24, 3}, {60, 4}, {64, 1}, {9, 9}, {1028, 1}, {2050, 2}}) {
      const at::Tensor q = at::randn({3, width}), k = at::randn({3, width}), v = at::randn({3, width});
      const at::Tensor before = at::randn({3, width});
      const std::vector<int64_t> rows = {2, 0, 2};  // of s
      at::Tensor s = before.clone(), plain = before.clone();
      const auto added_to = [&](at::Tensor& state, GateActivation activation) {
        return here::add_gated(state, at::tensor(rows, at::kLong), q, {at::cat({k, v}, 1)}, groups, 1e-8,
                               at::kBFloat16, activation);
      };
      const at::Tensor rounded = added_to(s, GateActivation::silu);
      const at::Tensor plain_rounded = added_to(plain, GateActivation::none);
      EXPECT_TRUE(same_bits(rounded, s.to(at::kBFloat16)));
      EXPECT_TRUE(same_bits(plain_rounded, plain.to(at::kBFloat16)));
      const int64_t slice = width / groups;
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t g = 0; g < groups; ++g) {
          double qk = 0, qq = 0, kk = 0;
          for (int64_t i = g * slice; i < (g + 1) * slice; ++i) {
            const double a = q[r][i].item<double>(), b = k[r][i].item<double>();
            qk += a * b;
            qq += a * a;
            kk += b * b;
          }
          const double gate = qk / std::sqrt(qq) / std::sqrt(kk);
          for (int64_t i = g * slice; i < (g + 1) * slice; ++i) {
            const double from = before[rows[r]][i].item<double>(), gated = gate * v[r][i].item<double>();
            ASSERT_NEAR(s[r][i].item<double>(), from + silu(gated), 2e-6);
            ASSERT_NEAR(plain[r][i].item<double>(), from + gated, 2e-6);
          }
        }
      }
    }
  });
}

TEST(AddGated, ZeroQueriesLeaveTheStateAloneAndRowsAreIndependent) {
  on_every_path([] {
    const at::Tensor k = at::randn({90, 96}), v = at::randn({90, 96}), before = at::randn({90, 96});
    at::Tensor s = before.clone();
    const at::Tensor rows = at::arange(90, at::kLong), first = rows.slice(0, 0, 1);
    here::add_gated(s, rows, at::zeros({90, 96}), {at::cat({k, v}, 1)}, 1, 1e-6);
    EXPECT_TRUE(same_bits(s, before));
    const at::Tensor q = at::randn({90, 96});
    at::Tensor all = before.clone(), one = before.slice(0, 77, 78).clone(), own = before.clone();
    const at::Tensor kv = at::cat({k, v}, 1);
    here::add_gated(all, rows, q, {kv}, 3, 1e-6);
    here::add_gated(one, first, q.slice(0, 77, 78), {kv.slice(0, 77, 78)}, 3, 1e-6);
    EXPECT_TRUE(same_bits(one, all.slice(0, 77, 78)));
    here::add_gated(own, at::Tensor(), q, {kv}, 3, 1e-6);
    EXPECT_TRUE(same_bits(own, all));
  });
}

TEST(AddGated, KeysAndValuesOfATableAreThoseOfItsRows) {
  on_every_path([] {
    for (const auto& [width, groups] : {std::pair<int64_t, int64_t>{96, 3}, {10, 2}, {1028, 1}}) {
      for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
        const at::Tensor table = at::randn({40, 2 * width}).to(type), q = at::randn({5, width});
        const at::Tensor before = at::randn({5, width}), own = at::arange(5, at::kLong);
        const at::Tensor ids = at::tensor({39, 0, 7, 7, 21}, at::kLong);
        at::Tensor looked_up = before.clone(), given = before.clone();
        const at::Tensor rounded = here::add_gated(looked_up, own, q, {table, ids}, groups, 1e-6, type);
        here::add_gated(given, own, q, {table.index_select(0, ids).to(at::kFloat)}, groups, 1e-6, type);
        EXPECT_TRUE(same_bits(looked_up, given)) << width << ", " << type;
        EXPECT_TRUE(same_bits(rounded, given.to(type))) << width << ", " << type;
      }
    }
  });
}

// Rows that lie askew in memory cannot be read the way that others are.
TEST(Activation, ARowIsTheSameBitsWhereverItLies) {
  on_every_path([] {
    const at::Tensor x = at::randn({4, 64});
    const at::Tensor even = here::place(x);
    const at::Tensor askew =
        here::place(at::cat({at::zeros({1}), x.view(-1)})).slice(0, 1, 257).view({4, 64});
    const auto all_of = [](const at::Tensor& a) {
      at::Tensor sum = at::zeros_like(a), gated = at::empty_like(a), rounded = at::empty_like(a);
      add_silu_(sum, a);
      add_gated(a, here::place(at::arange(4, at::kLong)), a, {at::cat({a, a}, 1)}, 2, 1e-6,
                GateActivation::silu, gated, rounded);
      return at::cat({sum.cpu().view(-1), gated.cpu().view(-1)});
    };
    EXPECT_TRUE(same_bits(all_of(even), all_of(askew)));
  });
}

TEST(Activation, SaysWhatDoesNotFit) {
  at::Tensor s = at::ones({2, 6});
  EXPECT_NE(error_of([&] {
              here::add_silu_(s, at::ones({2, 5}));
            }).find("a has shape [2, 5]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              here::add_gated(s, at::zeros({2}, at::kLong), s, {at::cat({s, s}, 1)}, 4, 1e-6);
            }).find("4 groups do not divide the width 6"),
            std::string::npos);
  const at::Tensor rows = at::zeros({2}, at::kLong);
  EXPECT_NE(error_of([&] {
              here::add_gated(s, rows, s, {at::ones({9, 12}), rows}, 2, 1e-6);
            }).find("kv is Float, expected BFloat16"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
