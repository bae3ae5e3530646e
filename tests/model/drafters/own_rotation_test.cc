// A drafter's own layers may rotate positions by another base than the target's.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/drafters/drafter.h"
#include "tests/model/drafters/own_layers.h"
#include "tests/support/goldens.h"

namespace clover {
namespace {

using model::Segment;
using nlohmann::json;

/// Clover's augmenting block over a long text, written out in double precision with one rotation of its own.
class OwnRotation : public testing::Test {
 protected:
  static constexpr int64_t count_ = 1300;
  static constexpr double theta_ = 10000;

  /// The block of a drafter made with these settings: its output at the last row, trained or decoding.
  static at::Tensor block_output(const model::Target& target, const json& settings, const at::Tensor& u,
                                 bool frozen) {
    const at::NoGradGuard no_grad;
    const auto drafter = model::make_drafter("clover", settings, target.view(), {}, true, 1);
    const at::Tensor ids = at::zeros({count_}, at::kLong), last = at::tensor({count_ - 1}, at::kLong);
    const Segment whole{0, 0, count_};
    if (!frozen) return drafter->prime({u, at::Tensor()}, ids, {&whole, 1}, last, nullptr).hidden;
    drafter->freeze(at::kFloat);
    model::KvCache cache(target.kv_shape(1), 100, 16);
    const int32_t sequence = cache.open(count_);
    // A pass takes the pages, as the target's does.
    model::RowBatch batch;
    std::vector<int32_t> kept;
    for (int32_t row = 0; row < count_; ++row) batch.add(0, sequence, row - 1), kept.push_back(row);
    cache.place(batch);
    cache.keep_rows(sequence, kept, target.config().layers);
    // The last rows in a later call: what they attend to comes from the cache.
    at::Tensor hidden;
    for (const auto& [begin, end] : {std::pair<int32_t, int32_t>{0, 1290}, {1290, count_}}) {
      const Segment part{sequence, begin, end - begin};
      model::DraftKv kv = test::own_layers(*drafter, cache, target.config().layers, part);
      hidden = drafter
                   ->prime({u.slice(0, begin, end), at::Tensor()}, ids.slice(0, begin, end), {},
                           at::tensor({int64_t{end - begin - 1}}, at::kLong), &kv)
                   .hidden;
    }
    return hidden;
  }

  /// The same by plain loops over pairs: u + W_O Attention(RMS(u)), position t's pair i turned by
  /// t theta^(-2i/d).
  static at::Tensor written_out(const model::Target& target, const at::Tensor& u) {
    const auto& config = target.config();
    const auto drafter = model::make_drafter("clover", {{"regression", "none"}, {"block", "attention"}},
                                             target.view(), {}, true, 1);
    const auto weight = [&](const std::string& name) {
      return drafter->parameter("block." + name + ".weight").detach().to(at::kDouble);
    };
    const at::Tensor x = u.to(at::kDouble);
    const at::Tensor normed =
        x / (x.square().mean(-1, true) + config.norm_eps).sqrt() * weight("input_layernorm");
    const int64_t d = config.head_dim, group = config.heads / config.kv_heads;
    const auto turned = [d](const at::Tensor& rows, int64_t head, int64_t position) {
      std::vector<double> out(d);
      const double* in = rows.const_data_ptr<double>() + position * rows.size(1) + head * d;
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(theta_, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        out[i] = in[i] * std::cos(angle) - in[i + d / 2] * std::sin(angle);
        out[i + d / 2] = in[i + d / 2] * std::cos(angle) + in[i] * std::sin(angle);
      }
      return out;
    };
    const at::Tensor q = normed.matmul(weight("q_proj").t()).contiguous(),
                     k = normed.matmul(weight("k_proj").t()).contiguous(),
                     v = normed.matmul(weight("v_proj").t()).contiguous();
    at::Tensor mixed = at::zeros({1, config.heads * d}, at::kDouble);
    for (int64_t head = 0; head < config.heads; ++head) {
      const auto query = turned(q, head, count_ - 1);
      std::vector<double> share(count_);
      double sum = 0;
      for (int64_t row = 0; row < count_; ++row) {
        const auto key = turned(k, head / group, row);
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += query[i] * key[i];
        sum += share[row] = std::exp(score / std::sqrt(static_cast<double>(d)));
      }
      for (int64_t row = 0; row < count_; ++row)
        for (int64_t i = 0; i < d; ++i)
          mixed[0].data_ptr<double>()[head * d + i] +=
              share[row] / sum * v.const_data_ptr<double>()[row * v.size(1) + head / group * d + i];
    }
    return x.slice(0, count_ - 1) + mixed.matmul(weight("o_proj").t());
  }
};

TEST_F(OwnRotation, IsTheBlocksAndNotTheTargets) {
  for (const char* folder : {"llama3-rope-fp16", "dynamic-rope", "yarn-rope"}) {
    const auto target = model::Target::load(test::golden_target(folder), at::kFloat);
    at::manual_seed(4);
    const at::Tensor u = at::randn({count_, target->config().hidden}) * 2;
    const at::Tensor expected = written_out(*target, u);
    for (const bool frozen : {false, true}) {
      json settings{{"regression", "none"}, {"block", "attention"}};
      const at::Tensor rotates_as_target = block_output(*target, settings, u, frozen);
      settings["rope_theta"] = theta_;
      const at::Tensor own = block_output(*target, settings, u, frozen);
      EXPECT_LT((own.to(at::kDouble) - expected).abs().max().item<double>(), 2e-5) << folder << frozen;
      EXPECT_GT((rotates_as_target.to(at::kDouble) - expected).abs().max().item<double>(), 1e-3)
          << folder << frozen;
    }
  }
}

}  // namespace
}  // namespace clover
