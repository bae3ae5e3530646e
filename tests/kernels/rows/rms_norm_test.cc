#include "kernels/rows/rms_norm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

at::Tensor run(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType type) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(type));
  here::rms_norm(x, weight, eps, out);
  return out;
}

TEST(RmsNorm, IsThePlainLoop) {
  at::manual_seed(1);
  on_every_path([] {
    for (int64_t width : {1, 3, 8, 16, 20, 31, 576, 601, 2047, 2048, 2052, 8192, 8195, 8196}) {
      const int64_t rows = width < 2000 ? 4 : 2;
      const at::Tensor x = at::randn({rows, width}) * 3, weight = at::randn({width});
      const at::Tensor out = run(x, weight, 1e-5, at::kFloat);
      for (int64_t r = 0; r < rows; ++r) {
        double mean = 0;
        for (int64_t h = 0; h < width; ++h)
          mean += std::pow(x[r][h].item<double>(), 2) / static_cast<double>(width);
        for (int64_t h = 0; h < width; ++h) {
          const double expected = x[r][h].item<double>() / std::sqrt(mean + 1e-5) * weight[h].item<double>();
          ASSERT_NEAR(out[r][h].item<double>(), expected, 2e-6 * std::abs(expected) + 1e-12);
        }
      }
    }
  });
}

TEST(RmsNorm, RoundsOnceToItsOutput) {
  on_every_path([] {
    const at::Tensor x = at::randn({3, 45}), weight = at::randn({45});
    const at::Tensor full = run(x, weight, 1e-6, at::kFloat);
    for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      EXPECT_TRUE(same_bits(run(x, weight, 1e-6, type), full.to(type)));
    }
  });
}

TEST(RmsNorm, ARowDoesNotDependOnItsNeighboursThreadsOrPath) {
  const at::Tensor x = at::randn({100, 577}), weight = at::randn({577});
  const at::Tensor expected = run(x, weight, 1e-5, at::kBFloat16);
  on_every_path([&] {
    for (int threads : {1, 2}) {
      with_threads(threads, [&] { EXPECT_TRUE(same_bits(run(x, weight, 1e-5, at::kBFloat16), expected)); });
    }
    for (int64_t r : {0, 57, 99}) {
      EXPECT_TRUE(
          same_bits(run(x.slice(0, r, r + 1), weight, 1e-5, at::kBFloat16), expected.slice(0, r, r + 1)));
    }
  });
}

// A row that lies askew in memory cannot be read the way that another is.
TEST(RmsNorm, ARowIsTheSameBitsWhereverItLies) {
  on_every_path([] {
    for (int64_t width : {576, 8196}) {
      const at::Tensor x = at::randn({2, width}), weight = here::place(at::randn({width}));
      const at::Tensor askew =
          here::place(at::cat({at::zeros({1}), x.view(-1)})).slice(0, 1, 1 + 2 * width).view({2, width});
      for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        at::Tensor expected = at::empty({2, width}, weight.options().dtype(type));
        at::Tensor out = at::empty_like(expected);
        rms_norm(here::place(x), weight, 1e-5, expected);
        rms_norm(askew, weight, 1e-5, out);
        EXPECT_TRUE(same_bits(out.cpu(), expected.cpu())) << width << ", " << type;
      }
    }
  });
}

TEST(RmsNorm, OfSomeRowsIsTheSameBits) {
  on_every_path([] {
    for (int64_t width : {20, 576, 8196}) {
      const at::Tensor x = at::randn({3, width}), weight = at::randn({width});
      const at::Tensor rows = at::tensor({2, 0, 2, 1}, at::kLong);
      for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        at::Tensor out = at::empty({4, width}, type);
        here::rms_norm_of(x, rows, weight, 1e-5, out);
        EXPECT_TRUE(same_bits(out, run(x, weight, 1e-5, type).index_select(0, rows)))
            << width << ", " << type;
      }
    }
  });
}

TEST(RmsNorm, OfAWeightsRowsIsThePlainNormWhateverRowsStandBeside) {
  on_every_path([] {
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (int64_t width : {7, 45, 576, 4100}) {
        const at::Tensor x = at::randn({40, width}).to(type), weight = at::randn({width});
        const PackedWeight packed = PackedWeight::pack({x});
        const at::Tensor rows = at::tensor({39, 0, 17, 16, 39}, at::kLong);
        at::Tensor out = at::empty({5, width}, at::kFloat), alone = at::empty({1, width}, at::kFloat);
        here::rms_norm_of(packed, rows, weight, 1e-5, out);
        here::rms_norm_of(packed, rows.slice(0, 2, 3), weight, 1e-5, alone);
        EXPECT_TRUE(same_bits(alone, out.slice(0, 2, 3)));
        const at::Tensor chosen = x.index_select(0, rows).to(at::kDouble);
        const at::Tensor expected =
            chosen * (chosen.square().mean(-1, true) + 1e-5).rsqrt() * weight.to(at::kDouble);
        EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected, 2e-6, 1e-7)) << type << ", " << width;
        at::Tensor half = at::empty({5, width}, at::kHalf);
        here::rms_norm_of(packed, rows, weight, 1e-5, half);
        EXPECT_TRUE(same_bits(half, out.to(at::kHalf)));
      }
    }
  });
}

TEST(RmsNorm, BehindAResidualBlockIsThePlainLoop) {
  on_every_path([] {
    for (int64_t width : {20, 577, 8196}) {
      const at::Tensor x = at::randn({3, width}), a = at::randn({3, width}), weight = at::randn({width});
      at::Tensor out = at::empty({3, width}, at::kFloat), last = at::empty({1, width}, at::kFloat);
      here::silu_rms_norm(x, a, weight, 1e-5, out);
      here::silu_rms_norm(x.slice(0, 2), a.slice(0, 2), weight, 1e-5, last);
      EXPECT_TRUE(same_bits(last, out.slice(0, 2)));
      const at::Tensor sum = x.to(at::kDouble) + at::silu(a.to(at::kDouble));
      const at::Tensor expected = sum * (sum.square().mean(-1, true) + 1e-5).rsqrt() * weight.to(at::kDouble);
      EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected, 4e-6, 1e-6)) << width;
    }
  });
}

TEST(RmsNorm, SaysWhatDoesNotFit) {
  at::Tensor out = at::empty({2, 8});
  EXPECT_NE(error_of([&] {
              here::rms_norm(at::ones({2, 8}), at::ones({9}), 1e-5, out);
            }).find("weight has shape [9]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              here::rms_norm(at::ones({3, 8}), at::ones({8}), 1e-5, out);
            }).find("out has shape [2, 8]"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
