#include <ATen/ATen.h>

#include <vector>

#include "kernels/cpu_bodies.h"
#include "kernels/packed_weight.h"
#include "tests/kernels/paths.h"

namespace clover::kernels::cpu {

const CpuBodies& emulated_avx512_bf16_bodies();
const CpuBodies& emulated_amx_bodies();

namespace {

struct Family {
  const char* name;
  const CpuBodies& (*bodies)();
};

at::Tensor run(const CpuBodies& bodies, const at::Tensor& x, const PackedWeight& weight,
               const at::Tensor& bias, at::Tensor y, bool accumulate) {
  LinearWork call{};
  call.x = x.const_data_ptr();
  call.panels = weight.panels().const_data_ptr();
  call.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  call.y = y.mutable_data_ptr<float>();
  call.rows = x.size(0);
  call.outputs = weight.outputs();
  call.inputs = weight.inputs();
  call.element = x.scalar_type() == at::kBFloat16 ? Element::bf16
                 : x.scalar_type() == at::kHalf   ? Element::fp16
                                                  : Element::fp32;
  call.accumulate = accumulate;
  const LinearBody& body = bodies.linear(call.element);
  const int64_t height = body.tile_rows, tiles = (call.rows + height - 1) / height;
  std::vector<float> scratch(linear_scratch(tiles * height, call.inputs),
                             3.0e38f);  // nothing may be read unwritten
  call.scratch = scratch.data();
  body.pack(call, 0, tiles);
  // As threads share the panels: some here, some there.
  const int64_t panels = (call.outputs + 15) / 16, middle = panels > 1 ? panels / 3 + 1 : panels;
  body.panels(call, 0, middle, 0, tiles);
  if (middle < panels) body.panels(call, middle, panels, 0, tiles);
  return y;
}

class EmulatedLinear : public testing::TestWithParam<Family> {
 protected:
  const CpuBodies& body_ = GetParam().bodies();
};

TEST_P(EmulatedLinear, IsThePlainLoop) {
  at::manual_seed(4);
  for (at::ScalarType type : {at::kBFloat16, at::kFloat, at::kHalf}) {
    for (auto [rows, outputs, inputs] : {std::tuple{1, 1, 1},
                                         {1, 300, 64},
                                         {2, 130, 33},
                                         {4, 90, 20},
                                         {9, 48, 65},
                                         {31, 70, 32},
                                         {50, 130, 96}}) {
      const at::Tensor x = at::randn({rows, inputs}).to(type), w = at::randn({outputs, inputs}).to(type);
      const PackedWeight packed = PackedWeight::pack({w});
      const at::Tensor bias = at::randn({outputs}), start = at::randn({rows, outputs});
      const at::Tensor exact = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
      const double slack = 2e-6 * inputs;
      EXPECT_TRUE(at::allclose(run(body_, x, packed, bias, at::empty({rows, outputs}), false).to(at::kDouble),
                               exact + bias.to(at::kDouble), slack, slack + 1e-5));
      EXPECT_TRUE(at::allclose(run(body_, x, packed, {}, start.clone(), true).to(at::kDouble),
                               exact + start.to(at::kDouble), slack, slack + 1e-5));
    }
  }
}

TEST_P(EmulatedLinear, ARowDoesNotDependOnItsNeighbours) {
  at::manual_seed(5);
  for (at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const at::Tensor w = at::randn({217, 51}).to(type), all = at::randn({40, 51}).to(type);
    const PackedWeight packed = PackedWeight::pack({w});
    std::vector<at::Tensor> alone;
    for (int64_t r = 0; r < 40; ++r) {
      alone.push_back(run(body_, all.slice(0, r, r + 1), packed, {}, at::empty({1, 217}), false));
    }
    const at::Tensor expected = at::cat(alone);
    for (int64_t rows = 1; rows <= 40; ++rows) {
      ASSERT_TRUE(same_bits(run(body_, all.slice(0, 0, rows), packed, {}, at::empty({rows, 217}), false),
                            expected.slice(0, 0, rows)))
          << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedLinear,
                         testing::Values(Family{"avx512_bf16", emulated_avx512_bf16_bodies},
                                         Family{"amx", emulated_amx_bodies}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace clover::kernels::cpu
