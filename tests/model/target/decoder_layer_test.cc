#include "model/target/decoder_layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace clover::model {
namespace {

// Training starts from the unpacked weights.
TEST(DecoderWeights, UnpackToWhatWasPacked) {
  TargetConfig config;
  config.heads = 6, config.kv_heads = 2, config.head_dim = 24;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto drawn = [&](int64_t outputs) { return at::randn({outputs, 33}).to(type); };
    const at::Tensor q = drawn(144), k = drawn(48), v = drawn(48), gate = drawn(17), up = drawn(17);
    const auto qkv = unpack_qkv(pack_qkv({.q = q, .k = k, .v = v}, config, at::kCPU), config);
    EXPECT_TRUE(at::equal(qkv.q, q) && at::equal(qkv.k, k) && at::equal(qkv.v, v)) << type;
    EXPECT_FALSE(qkv.q_bias.defined() || qkv.q_norm.defined());

    const at::Tensor q_bias = at::randn({144}), k_bias = at::randn({48}), v_bias = at::randn({48}),
                     q_norm = at::randn({24}), k_norm = at::randn({24});
    const auto more =
        unpack_qkv(pack_qkv({q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm}, config, at::kCPU), config);
    EXPECT_TRUE(at::equal(more.q_bias, q_bias) && at::equal(more.k_bias, k_bias) &&
                at::equal(more.v_bias, v_bias) && at::equal(more.q_norm, q_norm) &&
                at::equal(more.k_norm, k_norm));
    const auto gate_up = unpack_gate_up(pack_gate_up(gate, up));
    EXPECT_TRUE(at::equal(gate_up[0], gate) && at::equal(gate_up[1], up)) << type;
  }
}

}  // namespace
}  // namespace clover::model
