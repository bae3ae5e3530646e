#include "model/decoder_layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace clover::model {
namespace {

// Training begins from what decoding reads.
TEST(DecoderWeights, UnpackToWhatWasPacked) {
  TargetConfig config;
  config.heads = 6, config.kv_heads = 2, config.head_dim = 24;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto drawn = [&](int64_t outputs) { return at::randn({outputs, 33}).to(type); };
    const at::Tensor q = drawn(144), k = drawn(48), v = drawn(48), gate = drawn(17), up = drawn(17);
    const auto qkv = unpack_qkv(pack_qkv(q, k, v, config), config);
    EXPECT_TRUE(at::equal(qkv[0], q) && at::equal(qkv[1], k) && at::equal(qkv[2], v)) << type;
    const auto gate_up = unpack_gate_up(pack_gate_up(gate, up));
    EXPECT_TRUE(at::equal(gate_up[0], gate) && at::equal(gate_up[1], up)) << type;
  }
}

}  // namespace
}  // namespace clover::model
