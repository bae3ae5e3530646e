#include "kernels/linear/linear.h"

#include <ATen/ATen.h>

#include "kernels/linear/linear_plan.h"
#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

struct Shape {
  int64_t rows, outputs, inputs;
};

at::Tensor run(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias = {}) {
  at::Tensor y = at::full({x.size(0), weight.outputs()}, 77.0f);
  here::linear(x, weight, bias, y);
  return y;
}

/// The plain loop, in double, and how far an fp32 chain may stray from it.
void expect_close(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& start) {
  const at::Tensor xd = x.to(at::kDouble), wd = w.to(at::kDouble), sd = start.to(at::kDouble);
  const auto a = xd.accessor<double, 2>(), b = wd.accessor<double, 2>(), s = sd.accessor<double, 2>();
  const auto out = y.accessor<float, 2>();
  for (int64_t r = 0; r < x.size(0); ++r) {
    for (int64_t n = 0; n < w.size(0); ++n) {
      double sum = s[r][n], size = std::abs(s[r][n]);
      for (int64_t k = 0; k < x.size(1); ++k) {
        sum += a[r][k] * b[n][k];
        size += std::abs(a[r][k] * b[n][k]);
      }
      ASSERT_NEAR(out[r][n], sum, 1e-6 * size * (4 + 0.05 * static_cast<double>(x.size(1))))
          << r << ", " << n;
    }
  }
}

TEST(Linear, IsThePlainLoop) {
  at::manual_seed(1);
  on_every_path([] {
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const Shape& shape :
           {Shape{1, 1, 1}, {2, 16, 32}, {3, 17, 33}, {5, 100, 7}, {7, 48, 129}, {13, 40, 64}}) {
        const at::Tensor x = at::randn({shape.rows, shape.inputs}).to(type);
        const at::Tensor w = at::randn({shape.outputs, shape.inputs}).to(type);
        const at::Tensor bias = at::randn({shape.outputs});
        const PackedWeight packed = PackedWeight::pack({w});
        const at::Tensor zero = at::zeros({shape.rows, shape.outputs});
        expect_close(run(x, packed), x, w, zero);
        expect_close(run(x, packed, bias), x, w, bias.expand_as(zero));
        const at::Tensor start = at::randn({shape.rows, shape.outputs});
        at::Tensor y = start.clone();
        here::linear(x, packed, {}, y, true);
        expect_close(y, x, w, start);
      }
    }
  });
}

// Promise 1 rests on this: a row's outputs are the same bits whoever travels with it.
TEST(Linear, ARowDoesNotDependOnItsNeighboursOrThreads) {
  at::manual_seed(2);
  const auto check = [](at::ScalarType type, int64_t inputs) {
    const at::Tensor w = at::randn({217, inputs}).to(type), all = at::randn({40, inputs}).to(type);
    const at::Tensor bias = at::randn({217});
    const PackedWeight packed = PackedWeight::pack({w});
    std::vector<at::Tensor> alone;
    for (int64_t r = 0; r < 40; ++r) alone.push_back(run(all.slice(0, r, r + 1), packed, bias));
    const at::Tensor expected = at::cat(alone);
    for (int threads : {1, 2, 3}) {
      with_threads(threads, [&] {
        for (int64_t rows = 1; rows <= 40; ++rows) {
          const int64_t first = (rows * 7) % (41 - rows);
          ASSERT_TRUE(same_bits(run(all.slice(0, first, first + rows), packed, bias),
                                expected.slice(0, first, first + rows)))
              << type << ", " << inputs << " inputs, " << rows << " rows, " << threads << " threads";
        }
      });
    }
  };
  on_every_path([&] {
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (int64_t inputs : {130, 131}) check(type, inputs);  // pairs, and one input left
  });
}

/// The first of the largest, by the plain loop; -1 where there is none.
at::Tensor best_of(const at::Tensor& sums) {
  at::Tensor best = at::full({sums.size(0)}, -1, at::kLong);
  const auto of = sums.accessor<float, 2>();
  for (int64_t r = 0; r < sums.size(0); ++r) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t n = 0; n < sums.size(1); ++n)
      if (of[r][n] > largest) largest = of[r][n], best[r] = n;
  }
  return best;
}

// Sums are sought through some panels at a time, by several threads: the edges between them are where an
// index could be wrong, and small whole numbers make ties.
TEST(Linear, ArgMaxIsThatOfTheProduct) {
  at::manual_seed(12);
  on_every_path([] {
    const int64_t most = here::emulated() ? 700 : 20000;
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const Shape& shape : {Shape{1, 1, 1}, {3, 17, 33}, {5, most, 24}, {40, 217, 131}, {90, most, 8}}) {
        at::Tensor w = at::randint(-3, 4, {shape.outputs, shape.inputs}).to(type);
        if (shape.outputs % 2 == 0) w.slice(0, 1, shape.outputs, 2).copy_(w.slice(0, 0, shape.outputs, 2));
        at::Tensor x = at::randint(-3, 4, {shape.rows, shape.inputs}).to(type);
        x[shape.rows / 2].fill_(std::numeric_limits<float>::quiet_NaN());
        if (shape.outputs > 2) w[shape.outputs / 3].fill_(std::numeric_limits<float>::quiet_NaN());
        const PackedWeight packed = PackedWeight::pack({w});
        const at::Tensor expected = best_of(run(x, packed));
        for (int threads : {1, 2, 3})
          with_threads(threads, [&] {
            EXPECT_TRUE(at::equal(here::linear_arg_max(x, packed), expected))
                << type << " " << shape.rows << " x " << shape.outputs << ", " << threads << " threads";
          });
      }
    }
    const at::Tensor x = at::randn({6, 64}), norm = at::rand({64});
    const PackedWeight packed = PackedWeight::pack({at::randn({300, 64}).to(at::kBFloat16)});
    at::Tensor sums = at::empty({6, 300});
    here::linear({x, norm, 1e-5}, packed, {}, sums);
    EXPECT_TRUE(at::equal(here::linear_arg_max({x, norm, 1e-5}, packed), best_of(sums)));
    EXPECT_EQ(here::linear_arg_max(at::empty({0, 64}, at::kBFloat16), packed).size(0), 0);
  });
}

TEST(Linear, ManyRowsInBlocksAreTheSameBits) {
  at::manual_seed(3);
  on_every_path([] {
    const at::Tensor w = at::randn({33, 1600}).to(at::kBFloat16),
                     x = at::randn({203, 1600}).to(at::kBFloat16);
    const PackedWeight packed = PackedWeight::pack({w});
    // The last block of several rows, and of one.
    for (int64_t rows : {203, 157, 161}) {
      const at::Tensor together = run(x.slice(0, 0, rows), packed);
      for (int64_t r : {int64_t{0}, int64_t{1}, int64_t{59}, int64_t{60}, int64_t{101}, rows - 2, rows - 1})
        ASSERT_TRUE(same_bits(run(x.slice(0, r, r + 1), packed), together.slice(0, r, r + 1)))
            << r << " of " << rows;
    }
  });
}

/// Rows of products of every kind of tile, each the same bits as alone.
void expect_rows_alone(const Shape& shape, std::initializer_list<int64_t> row_counts) {
  at::manual_seed(4);
  const at::Tensor w = at::randn({shape.outputs, shape.inputs}).to(at::kBFloat16),
                   x = at::randn({shape.rows, shape.inputs}).to(at::kBFloat16),
                   start = at::randn({shape.rows, shape.outputs});
  const PackedWeight packed = PackedWeight::pack({w});
  const auto add_to = [&](int64_t first, int64_t end) {
    at::Tensor y = start.slice(0, first, end).clone();
    here::linear(x.slice(0, first, end), packed, {}, y, true);
    return y;
  };
  const int64_t middle = shape.rows / 2;
  const at::Tensor alone = add_to(middle, middle + 1);
  expect_close(alone, x.slice(0, middle, middle + 1), w, start.slice(0, middle, middle + 1));
  const at::Tensor all = add_to(0, shape.rows);
  EXPECT_TRUE(same_bits(all[middle], alone[0]));
  for (const int64_t rows : row_counts) {
    const int64_t first = std::min(middle, shape.rows - rows);
    EXPECT_TRUE(same_bits(add_to(first, first + rows), all.slice(0, first, first + rows))) << rows << " rows";
  }
}

// As wide as makes a GPU take the larger tiles; with sums over k in one block, in four, and of odd parts.
TEST(Linear, WideProductsAreTheSameBitsInAnyTile) {
  on_every_path([] { expect_rows_alone({130, 15380, 40}, {17, 40, 70, 100, 128, 130}); });
}
TEST(Linear, DeepProductsAreTheSameBitsInAnyTile) {
  on_every_path([] { expect_rows_alone({260, 1096, 2104}, {8, 16, 20, 60, 90, 110, 190, 256, 260}); });
}

TEST(Linear, OneBadRowLeavesTheOthersAlone) {
  on_every_path([] {
    const at::Tensor x = at::randn({6, 48}).to(at::kBFloat16), w = at::randn({20, 48}).to(at::kBFloat16);
    const PackedWeight packed = PackedWeight::pack({w});
    const at::Tensor clean = run(x, packed);
    at::Tensor spoiled = x.clone();
    spoiled[2][5] = std::numeric_limits<float>::quiet_NaN();
    spoiled[4][0] = std::numeric_limits<float>::infinity();
    const at::Tensor y = run(spoiled, packed);
    for (int64_t r : {0, 1, 3, 5}) EXPECT_TRUE(same_bits(y[r], clean[r]));
    EXPECT_TRUE(y[2].isnan().all().item<bool>());
    EXPECT_FALSE(y[4].isfinite().any().item<bool>());
  });
}

// What a GPU's kernel for many rows is asked for: products of Vicuna-7B and of SmolLM2-135M.
TEST(LinearPlan, ReadsWeightsOnceAndFillsTheGpu) {
  const cuda::GpuLimits h100{true, true, 132}, a100{true, false, 108}, small{false, false, 84};
  const auto call_of = [](int64_t rows, int64_t outputs, int64_t inputs) {
    LinearCall call{};
    call.rows = rows, call.outputs = outputs, call.inputs = inputs, call.element = Element::bf16;
    return call;
  };
  using Kernel = cuda::LinearPlan::Kernel;
  // Rows of a tile, stages of its ring, and how many blocks there are.
  using Clusters = std::tuple<int64_t, int64_t, int64_t>;
  const auto clusters_of = [&](int64_t rows, int64_t outputs, int64_t inputs) {
    const LinearCall call = call_of(rows, outputs, inputs);
    const cuda::LinearPlan plan = cuda::linear_plan(call, h100);
    EXPECT_EQ(plan.kernel, Kernel::clusters);
    EXPECT_EQ(cuda::split_floats(call, plan), 0);
    return Clusters{plan.clusters.rows_per_tile, plan.clusters.stages, plan.clusters.blocks(call)};
  };
  EXPECT_EQ(clusters_of(9, 12288, 4096), (Clusters{16, 6, 4 * 96}));
  EXPECT_EQ(clusters_of(20, 12288, 4096), (Clusters{24, 5, 4 * 96}));
  EXPECT_EQ(clusters_of(80, 22016, 4096), (Clusters{80, 4, 4 * 172}));
  EXPECT_EQ(clusters_of(80, 4096, 11008), (Clusters{80, 4, 4 * 32}));
  EXPECT_EQ(clusters_of(17, 49152, 576), (Clusters{24, 5, 4 * 384}));
  EXPECT_EQ(clusters_of(240, 12288, 4096), (Clusters{256, 4, 4 * 96}));
  EXPECT_EQ(clusters_of(300, 12288, 4096), (Clusters{160, 3, 2 * 4 * 96}));
  // Outputs and rows of a block of other GPUs, and how many blocks there are.
  using Blocks = std::tuple<int64_t, int64_t, int64_t>;
  const auto blocks_of = [&](const cuda::GpuLimits& gpu, int64_t rows, int64_t outputs, int64_t inputs) {
    const LinearCall call = call_of(rows, outputs, inputs);
    const cuda::LinearPlan plan = cuda::linear_plan(call, gpu);
    EXPECT_EQ(plan.kernel, Kernel::flat);
    EXPECT_EQ(cuda::split_floats(call, plan) > 0, plan.flat.split_blocks > 0);
    EXPECT_EQ(plan.flat.row_blocks(call),
              (rows + plan.flat.rows_per_block() - 1) / plan.flat.rows_per_block());
    return Blocks{plan.flat.panels_per_block() * 16, plan.flat.rows_per_block(), plan.flat.blocks(call)};
  };
  EXPECT_EQ(blocks_of(a100, 20, 12288, 4096), (Blocks{128, 32, 96}));
  EXPECT_EQ(blocks_of(a100, 20, 4096, 11008), (Blocks{128, 32, 4 * 32}));
  EXPECT_EQ(blocks_of(a100, 17, 49152, 576), (Blocks{128, 32, 384}));
  EXPECT_EQ(blocks_of(a100, 80, 4096, 4096), (Blocks{128, 96, 4 * 32}));
  EXPECT_EQ(blocks_of(a100, 240, 22016, 4096), (Blocks{128, 128, 344}));
  EXPECT_EQ(blocks_of(small, 80, 4096, 4096), (Blocks{64, 64, 128}));
  // Few rows, rows that do not begin at 16 bytes, and weights that lie in the cache.
  const auto is_few = [&](int64_t rows, int64_t outputs, int64_t inputs) {
    return cuda::linear_plan(call_of(rows, outputs, inputs), h100).kernel == Kernel::few;
  };
  EXPECT_TRUE(is_few(8, 4096, 4096));
  EXPECT_TRUE(is_few(17, 4096, 4100));
  EXPECT_TRUE(is_few(33, 576, 576));
  EXPECT_FALSE(is_few(1024, 576, 1536));
}

// Products of Vicuna-7B and of SmolLM2-135M.
TEST(LinearPlan, FewRowsAreNormedWithinTheProduct) {
  const auto normed = [](int64_t rows, int64_t outputs, int64_t inputs) {
    LinearCall call{};
    call.rows = rows, call.outputs = outputs, call.inputs = inputs, call.element = Element::bf16;
    return cuda::norms_in_kernel(call);
  };
  EXPECT_TRUE(normed(1, 22016, 4096) && normed(2, 12288, 4096) && normed(2, 49152, 576));
  EXPECT_FALSE(normed(3, 22016, 4096) || normed(3, 49152, 576) || normed(20, 12288, 4096));
  EXPECT_TRUE(normed(1, 960, 576) && normed(8, 3072, 576));
  EXPECT_TRUE(normed(4, 1024, 4096));
  EXPECT_FALSE(normed(9, 3072, 576) || normed(1, 960, 578) || normed(5, 400, 4096));
}

TEST(Linear, NoRowsAreNoWork) {
  const PackedWeight packed = PackedWeight::pack({at::ones({4, 8})});
  at::Tensor y = at::empty({0, 4});
  here::linear(at::empty({0, 8}), packed, {}, y);
}

TEST(Linear, SaysWhatDoesNotFit) {
  const PackedWeight packed = PackedWeight::pack({at::ones({4, 8})});
  at::Tensor y = at::empty({2, 4});
  const at::Tensor x = at::ones({2, 8});
  EXPECT_NE(error_of([&] {
              here::linear(at::ones({2, 9}), packed, {}, y);
            }).find("x has shape [2, 9], expected [-1, 8]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { here::linear(x.to(at::kHalf), packed, {}, y); }).find("x is Half, expected Float"),
            std::string::npos);
  EXPECT_NE(error_of([&] { here::linear(x, packed, at::ones({4}), y, true); }).find("bias"),
            std::string::npos);
  EXPECT_NE(error_of([&] { here::linear(x, packed, at::ones({5}), y); }).find("bias has shape [5]"),
            std::string::npos);
  at::Tensor wrong = at::empty({3, 4});
  EXPECT_NE(error_of([&] { here::linear(x, packed, {}, wrong); }).find("y has shape [3, 4]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              here::linear(at::ones({8, 2}).t(), packed, {}, y);
            }).find("not contiguous"),
            std::string::npos);
  EXPECT_NE(error_of([&] { here::linear(x, PackedWeight(), {}, y); }).find("weight is undefined"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
