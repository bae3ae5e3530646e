#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

at::Tensor sums_of(const at::Tensor& x, const PackedWeight& weight) {
  at::Tensor y = at::empty({x.size(0), weight.outputs()});
  here::linear(x, weight, {}, y);
  return y;
}

at::Tensor gated(const at::Tensor& x, const PackedWeight& gate_up) {
  at::Tensor out = at::empty({x.size(0), gate_up.outputs() / 2}, x.options());
  here::linear_silu_mul(x, gate_up, out);
  return out;
}

/// Rows, outputs and inputs that a GPU takes with few rows, with many, with sums over k in one block and in
/// four, with inputs that do not lie on 16 bytes, and a CPU with several blocks of rows.
struct EpilogueShape {
  int64_t rows, outputs, inputs;
};
const std::vector<EpilogueShape> epilogue_shapes{
    {1, 2, 1}, {3, 14, 33}, {9, 200, 40}, {17, 1032, 9}, {33, 18000, 40}, {40, 2200, 2104}, {200, 34, 2104}};

TEST(LinearSiluMul, IsSiluOfOneSumTimesTheNext) {
  at::manual_seed(1);
  on_every_path([] {
    for (const EpilogueShape& shape : epilogue_shapes) {
      for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const at::Tensor x = (at::randn({shape.rows, shape.inputs}) / std::sqrt(shape.inputs)).to(type);
        const PackedWeight weight = PackedWeight::pack({at::randn({shape.outputs, shape.inputs}).to(type)});
        const at::Tensor y = sums_of(x, weight), out = gated(x, weight).to(at::kFloat);
        at::Tensor expected = at::empty({shape.rows, shape.outputs / 2});
        const auto sums = y.accessor<float, 2>();
        auto to = expected.accessor<float, 2>();
        double worst = 0;
        for (int64_t r = 0; r < shape.rows; ++r) {
          for (int64_t i = 0; i < shape.outputs / 2; ++i) {
            const float gate = sums[r][2 * i], up = sums[r][2 * i + 1];
            const double exact = gate / (1 + std::exp(-static_cast<double>(gate))) * up;
            to[r][i] = gate / (1.0f + exp_f32(-gate)) * up;
            worst = std::max(worst, std::abs(to[r][i] - exact) / (std::abs(exact) + 1e-6));
          }
        }
        EXPECT_LT(worst, 1e-6);
        // The vector body and the tail are the scalar function, to the bit, rounded once.
        ASSERT_TRUE(same_bits(out, expected.to(type).to(at::kFloat)))
            << type << ", " << shape.rows << " rows, " << shape.outputs << " outputs";
      }
    }
  });
}

TEST(LinearSiluMul, SurvivesLargeSums) {
  on_every_path([] {
    const at::Tensor sums = at::tensor({-200.0f, 1.0f, 200.0f, 1.0f, infinite, 2.0f, 0.0f, infinite});
    const at::Tensor out = gated(at::ones({1, 1}), PackedWeight::pack({sums.reshape({8, 1})}))[0];
    EXPECT_EQ(out[0].item<float>(), 0);
    EXPECT_EQ(out[1].item<float>(), 200);
    EXPECT_EQ(out[2].item<float>(), infinite);
    EXPECT_TRUE(std::isnan(out[3].item<float>()));
  });
}

/// What linear_rope_and_store leaves of rows whose positions and slots are given.
struct Stored {
  at::Tensor q, k, v;

  Stored(const Heads& heads, const at::Tensor& x, const QkvWeight& weight, const at::Tensor& angle,
         const at::Tensor& slots, at::ScalarType cache)
      : q(at::empty({x.size(0), heads.query, heads.size})),
        k(at::full({33, heads.kv, 4, heads.size}, 7.0f, at::TensorOptions(cache))),
        v(k.clone()) {
    here::linear_rope_and_store(x, weight, angle.cos(), angle.sin(), slots, q, k, v);
    k = k.transpose(1, 2).flatten(0, 1), v = v.transpose(1, 2).flatten(0, 1);  // [slots, Hkv, d]
  }
};

/// Random weights for those heads, with a bias and norms or without.
QkvWeight drawn(const Heads& heads, int64_t inputs, at::ScalarType type, bool with_bias, bool with_norms) {
  QkvWeight qkv{PackedWeight::pack({at::randn({heads.outputs(), inputs}).to(type)})};
  if (with_bias) qkv.bias = at::randn({heads.outputs()});
  if (!with_norms) return qkv;
  qkv.query_norm = at::rand({heads.size}) + 0.5, qkv.key_norm = at::rand({heads.size}) + 0.5;
  qkv.norm_eps = 1e-3;
  return qkv;
}

/// Queries, keys and values as their op should leave them, of the product's sums: [R, heads, d] each.
std::vector<at::Tensor> expected_of(const Heads& heads, const at::Tensor& sums, const QkvWeight& qkv,
                                    const at::Tensor& angle) {
  const at::Tensor all = qkv.bias.defined() ? qkv.bias + sums : sums;
  const auto parts =
      all.view({sums.size(0), -1, heads.size}).split_with_sizes({heads.query, heads.kv, heads.kv}, 1);
  const auto turned = [&](const at::Tensor& part, const at::Tensor& norm) {
    const at::Tensor scaled =
        norm.defined() ? part * (part.square().mean(2, true) + qkv.norm_eps).rsqrt() * norm : part;
    const at::Tensor pairs = scaled.reshape({part.size(0), part.size(1), heads.size / 2, 2});
    const at::Tensor low = pairs.select(3, 0), high = pairs.select(3, 1);
    const at::Tensor c = angle.cos().unsqueeze(1), s = angle.sin().unsqueeze(1);
    return at::cat({low * c - high * s, high * c + low * s}, 2);
  };
  return {turned(parts[0], qkv.query_norm), turned(parts[1], qkv.key_norm), parts[2]};
}

TEST(LinearRopeAndStore, TurnsPairsAndStoresAtTheSlots) {
  at::manual_seed(2);
  on_every_path([] {
    for (const Heads& heads : {Heads{2, 1, 8}, {3, 3, 24}, {4, 2, 64}, {9, 3, 64}}) {
      for (at::ScalarType cache : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const at::ScalarType type = cache == at::kHalf ? at::kBFloat16 : cache;
        const QkvWeight qkv = drawn(heads, 40, type, /*with_bias=*/cache != at::kHalf, false);
        const at::Tensor x = (at::randn({3, 40}) / 6).to(type), angle = at::rand({3, heads.size / 2}) * 6;
        const at::Tensor slots = at::tensor({13, 0, 6}, at::kLong);
        Stored found(heads, x, qkv, angle, slots, cache);

        const auto expected = expected_of(heads, sums_of(x, qkv.matrix), qkv, angle);
        EXPECT_TRUE(same_bits(found.q, expected[0]));
        EXPECT_TRUE(same_bits(found.k.index_select(0, slots), expected[1].to(cache)));
        EXPECT_TRUE(same_bits(found.v.index_select(0, slots), expected[2].to(cache)));
        for (at::Tensor written : {found.k, found.v}) {
          written.index_fill_(0, slots, 7);
          EXPECT_TRUE((written == 7).all().item<bool>()) << "a slot that is nobody's was written";
        }
      }
    }
  });
}

// Sums over k in one block and in four; heads narrower and wider than what a GPU's warp takes at once.
TEST(LinearRopeAndStore, NormsHeadsBeforeItTurnsThem) {
  at::manual_seed(4);
  on_every_path([] {
    for (const auto& [heads, inputs] : {std::tuple{Heads{2, 1, 8}, int64_t{40}},
                                        {{3, 3, 24}, 40},
                                        {{5, 1, 64}, 33},
                                        {{4, 2, 128}, 1056},
                                        {{2, 2, 256}, 40}}) {
      for (const int64_t rows : {1, 3, 40}) {
        for (const bool with_bias : {false, true}) {
          const QkvWeight qkv = drawn(heads, inputs, at::kBFloat16, with_bias, true);
          const at::Tensor x = at::randn({rows, inputs}).to(at::kBFloat16),
                           angle = at::rand({rows, heads.size / 2}) * 6;
          const at::Tensor slots = at::randperm(132).slice(0, 0, rows);
          const Stored found(heads, x, qkv, angle, slots, at::kFloat);
          const auto expected = expected_of(heads, sums_of(x, qkv.matrix), qkv, angle);
          EXPECT_LT((found.q - expected[0]).abs().max().item<float>(), 1e-5);
          EXPECT_LT((found.k.index_select(0, slots) - expected[1]).abs().max().item<float>(), 1e-5);
          EXPECT_TRUE(same_bits(found.v.index_select(0, slots), expected[2]));
        }
      }
    }
  });
}

// Promise 1 rests on this: a row is the same bits whoever travels with it, in tiles of every kind.
TEST(LinearRopeAndStore, ARowDoesNotDependOnItsNeighbours) {
  at::manual_seed(3);
  for (const auto& [heads, rows, inputs, extras] :
       {std::tuple{Heads{2, 1, 40}, int64_t{50}, int64_t{33}, false},
        {Heads{60, 30, 128}, 33, 40, false},
        {Heads{18, 8, 64}, 130, 2048, false},
        {Heads{5, 2, 40}, 50, 33, true},
        {Heads{18, 8, 64}, 130, 2048, true}}) {
    const at::Tensor x = at::randn({rows, inputs}).to(at::kBFloat16),
                     angle = at::rand({rows, heads.size / 2});
    const QkvWeight qkv = drawn(heads, inputs, at::kBFloat16, extras, extras);
    const at::Tensor slots = at::randperm(132).slice(0, 0, rows);
    on_every_path([&, heads = heads, rows = rows] {
      const Stored all(heads, x, qkv, angle, slots, at::kBFloat16);
      for (const int64_t row : {int64_t{31}, rows - 1}) {
        const auto its = [&](const at::Tensor& of_rows) { return of_rows.slice(0, row, row + 1); };
        const Stored one(heads, its(x), qkv, its(angle), its(slots), at::kBFloat16);
        const int64_t slot = slots[row].item<int64_t>();
        EXPECT_TRUE(same_bits(one.q[0], all.q[row])) << row << " of " << rows;
        EXPECT_TRUE(same_bits(one.k[slot], all.k[slot])) << row << " of " << rows;
        EXPECT_TRUE(same_bits(one.v[slot], all.v[slot])) << row << " of " << rows;
      }
    });
  }
}

// Every value of fp32's exponents, so that subnormals, rounding to infinity and NaN are among them.
TEST(LinearRopeAndStore, RoundsAsTorchDoesOnEveryPath) {
  const Heads heads{22, 22, 1024};
  std::vector<float> sums(2 * heads.kv * heads.size);
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65537 * 3)
    sums.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  sums.resize(heads.outputs());
  const at::Tensor weight = at::tensor(sums).reshape({heads.outputs(), 1});
  const at::Tensor exact = weight.slice(0, 2 * heads.kv * heads.size).view({heads.kv, heads.size});
  on_every_path([&] {
    for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const Stored found(heads, at::ones({1, 1}), {PackedWeight::pack({weight})}, at::zeros({1, 512}),
                         at::zeros({1}, at::kLong), type);
      const at::Tensor rounded = found.v[0], expected = exact.to(type);
      EXPECT_TRUE(same_bits(rounded.isnan(), expected.isnan()));
      EXPECT_TRUE(same_bits(rounded.nan_to_num(1), expected.nan_to_num(1)));
    }
  });
}

TEST(LinearEpilogue, SaysWhatDoesNotFit) {
  const at::Tensor x = at::ones({2, 8});
  at::Tensor out = at::empty({2, 4});
  const auto error_of_gate = [&](int64_t outputs) {
    return error_of([&] { here::linear_silu_mul(x, PackedWeight::pack({at::ones({outputs, 8})}), out); });
  };
  EXPECT_EQ(error_of_gate(8), "");
  EXPECT_NE(error_of_gate(7).find("7 outputs, expected an even number"), std::string::npos);
  EXPECT_NE(error_of_gate(10).find("out has shape [2, 4], expected [2, 5]"), std::string::npos);
  const Heads heads{2, 1, 8};
  const auto error_of_heads = [&](int64_t outputs, int64_t angles) {
    return error_of([&] {
      Stored(heads, x, {PackedWeight::pack({at::ones({outputs, 8})})}, at::zeros({2, angles}),
             at::tensor({0, 1}, at::kLong), at::kFloat);
    });
  };
  EXPECT_EQ(error_of_heads(32, 4), "");
  EXPECT_NE(error_of_heads(24, 4).find("qkv has 24 outputs, expected those of 2 query and twice 1 key heads"),
            std::string::npos);
  EXPECT_NE(error_of_heads(32, 8).find("cos has shape [2, 8], expected [2, 4]"), std::string::npos);
}

TEST(LinearEpilogue, NoRowsAreNoWork) {
  const PackedWeight weight = PackedWeight::pack({at::ones({4, 8})});
  EXPECT_EQ(gated(at::empty({0, 8}), weight).size(0), 0);
}

}  // namespace
}  // namespace clover::kernels
