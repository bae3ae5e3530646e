#include <ATen/ATen.h>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

constexpr double eps = 1e-3;

struct Normed {
  at::Tensor x, weight, rows;  // rows: x as rms_norm leaves it

  Normed(int64_t count, int64_t inputs, at::ScalarType type)
      : x(at::randn({count, inputs}) * 3), weight(at::rand({inputs}) + 0.5), rows(at::empty_like(x, type)) {
    here::rms_norm(x, weight, eps, rows);
  }
  LinearInput input() const { return {x, weight, eps}; }
};

/// Rows that a GPU's product norms itself (in one stride of 1024 numbers and in several, in few blocks and in
/// many, two of large weights and more of small ones), and rows that it does not.
struct InputShape {
  int64_t rows, inputs, outputs;
};
const std::vector<InputShape> input_shapes{{1, 4, 4300},    {8, 20, 4300},   {5, 576, 4300}, {8, 1024, 34},
                                           {2, 1028, 34},   {4, 4096, 34},   {1, 5000, 34},  {3, 6828, 34},
                                           {2, 1700, 4300}, {3, 1024, 4300}, {3, 33, 100},   {9, 576, 100},
                                           {5, 4100, 34},   {40, 64, 100}};

TEST(LinearInput, IsNormedToTheBitsOfRmsNorm) {
  at::manual_seed(11);
  on_every_path([] {
    for (const InputShape& shape : input_shapes) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Normed normed(shape.rows, shape.inputs, type);
        const PackedWeight weight = PackedWeight::pack({at::randn({shape.outputs, shape.inputs}).to(type)});
        const at::Tensor bias = at::randn({shape.outputs});
        at::Tensor y = at::empty({shape.rows, shape.outputs}), expected = at::empty_like(y);
        here::linear(normed.input(), weight, bias, y);
        here::linear(normed.rows, weight, bias, expected);
        EXPECT_TRUE(same_bits(y, expected)) << shape.rows << " rows of " << shape.inputs << ", " << type;
      }
    }
  });
}

TEST(LinearInput, IsNormedForEachEpilogue) {
  at::manual_seed(12);
  constexpr int64_t query_heads = 3, kv_heads = 2, size = 24;
  on_every_path([] {
    for (const int64_t rows : {1, 5, 20}) {
      for (const bool norms_heads : {false, true}) {
        const Normed normed(rows, 96, at::kBFloat16);
        QkvWeight qkv{
            PackedWeight::pack({at::randn({(query_heads + 2 * kv_heads) * size, 96}).to(at::kBFloat16)})};
        if (norms_heads)
          qkv.query_norm = at::ones({size}), qkv.key_norm = at::ones({size}), qkv.norm_eps = eps;
        const at::Tensor angle = at::rand({rows, size / 2}) * 6, slots = at::randperm(32).slice(0, 0, rows);
        const auto stored = [&](const LinearInput& x) {
          std::vector<at::Tensor> all{at::empty({rows, query_heads, size}), at::zeros({8, kv_heads, 4, size}),
                                      at::zeros({8, kv_heads, 4, size})};
          here::linear_rope_and_store(x, qkv, angle.cos(), angle.sin(), slots, all[0], all[1], all[2]);
          return all;
        };
        const auto found = stored(normed.input()), expected = stored(normed.rows);
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(same_bits(found[i], expected[i])) << i << ", " << rows << " rows";

        const PackedWeight gate_up = PackedWeight::pack({at::randn({70, 96}).to(at::kBFloat16)});
        at::Tensor out = at::empty({rows, 35}, at::kBFloat16), expected_out = at::empty_like(out);
        here::linear_silu_mul(normed.input(), gate_up, out);
        here::linear_silu_mul(normed.rows, gate_up, expected_out);
        EXPECT_TRUE(same_bits(out.to(at::kFloat), expected_out.to(at::kFloat))) << rows << " rows";
      }
    }
  });
}

// Promise 1 rests on this: a row is the same bits whether the product norms it or not.
TEST(LinearInput, ARowDoesNotDependOnItsNeighbours) {
  at::manual_seed(13);
  on_every_path([] {
    const Normed normed(30, 576, at::kBFloat16);
    const PackedWeight weight = PackedWeight::pack({at::randn({48, 576}).to(at::kBFloat16)});
    at::Tensor all = at::empty({30, 48});
    here::linear(normed.input(), weight, {}, all);
    for (const int64_t rows : {1, 3, 8, 16}) {
      at::Tensor some = at::empty({rows, 48});
      here::linear({normed.x.slice(0, 30 - rows), normed.weight, eps}, weight, {}, some);
      EXPECT_TRUE(same_bits(some, all.slice(0, 30 - rows))) << rows << " rows";
    }
  });
}

// What lies askew in memory is normed by a kernel of its own.
TEST(LinearInput, ARowIsTheSameBitsWhereverItLies) {
  at::manual_seed(16);
  on_every_path([] {
    const at::Tensor x = here::place(at::randn({3, 64})), norm = here::place(at::rand({64}) + 0.5);
    const PackedWeight weight = here::place(PackedWeight::pack({at::randn({48, 64}).to(at::kBFloat16)}));
    const auto askew = [](const at::Tensor& numbers) {
      return here::place(at::cat({at::zeros({1}), numbers.cpu().view(-1)})).slice(0, 1).view(numbers.sizes());
    };
    const auto product = [&](const LinearInput& input) {
      at::Tensor y = here::place(at::empty({3, 48}));
      linear(input, weight, {}, y);
      return y.cpu();
    };
    const at::Tensor expected = product({x, norm, eps});
    EXPECT_TRUE(same_bits(product({askew(x), norm, eps}), expected));
    EXPECT_TRUE(same_bits(product({x, askew(norm), eps}), expected));
  });
}

TEST(LinearInput, DamagedRowsStayAlone) {
  on_every_path([] {
    Normed normed(3, 64, at::kBFloat16);
    normed.x[1][5] = std::numeric_limits<float>::quiet_NaN();
    const PackedWeight weight = PackedWeight::pack({at::ones({20, 64}, at::kBFloat16)});
    at::Tensor y = at::empty({3, 20});
    here::linear(normed.input(), weight, {}, y);
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[2].isfinite().all().item<bool>());
  });
}

TEST(LinearInput, SaysWhatDoesNotFit) {
  const PackedWeight weight = PackedWeight::pack({at::ones({4, 8}, at::kBFloat16)});
  at::Tensor y = at::empty({2, 4});
  const auto error = [&](const LinearInput& x) { return error_of([&] { here::linear(x, weight, {}, y); }); };
  EXPECT_EQ(error({at::ones({2, 8}), at::ones({8}), eps}), "");
  EXPECT_NE(error({at::ones({2, 8}), at::ones({9}), eps}).find("norm has shape [9], expected [8]"),
            std::string::npos);
  EXPECT_NE(error({at::ones({2, 8}, at::kBFloat16), at::ones({8}), eps}).find("x "), std::string::npos);
  EXPECT_NE(error(at::ones({2, 8})).find("x "), std::string::npos);
  EXPECT_NE(error_of([] {
              LinearInput(at::ones({2, 8}), {}, eps);
            }).find("norm's weight is undefined"),
            std::string::npos);
  at::Tensor both = at::zeros({4, 4});
  EXPECT_NE(error_of([&] {
              linear({both, at::ones({4}), eps}, PackedWeight::pack({at::ones({4, 4})}), {}, both, true);
            }).find("y shares memory with x"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
