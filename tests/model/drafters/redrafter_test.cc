// ReDrafter against Apple's code (tests/golden/drafters/redrafter/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "model/graphs/guesses.h"
#include "tests/support/goldens.h"
#include "tests/support/published_names.h"
#include "tests/support/reading.h"

namespace clover {
namespace {

using data::SafetensorsReader;
using model::DraftState;
using nlohmann::json;

struct ReDrafterCase {
  const char* name;
  const char* target;
  json settings;
};

class ReDrafterOfApple : public testing::TestWithParam<ReDrafterCase> {
 protected:
  void SetUp() override {
    const auto folder = test::goldens() / "drafters" / GetParam().name;
    target_ = model::Target::load(test::goldens() / "drafters" / GetParam().target, at::kFloat);
    drafter_ = model::make_drafter("redrafter", GetParam().settings, target_->view(), {}, true, 1);
    const auto weights = SafetensorsReader::open(folder / "published" / "model.safetensors");
    const int64_t layers = GetParam().settings.at("layers");
    test::take_weights(*drafter_, weights,
                       [layers](const std::string& name) { return test::name_of_apple(name, layers); });
    golden_.emplace(SafetensorsReader::open(folder / "golden.safetensors"));
    ids_ = golden_->read("ids").select(0, 0).clone();
  }

  /// The state after the root has been read at every row of the text but the last.
  DraftState primed() const {
    const int64_t rows = ids_.size(0) - 1;
    model::Features features;
    features.post_norm = golden_->read("features").select(0, 0).slice(0, 0, rows).contiguous();
    const model::Segment segment{0, 0, static_cast<int32_t>(rows)};
    return drafter_->prime(features, ids_.slice(0, 1), {&segment, 1}, at::arange(rows, at::kLong), nullptr);
  }

  /// Compares states and logits of 8 steps; `tolerance` absolute.
  void expect_golden(double tolerance) const {
    const at::NoGradGuard no_grad;
    const at::Tensor states = golden_->read("path_states"), logits = golden_->read("path_logits"),
                     chosen = golden_->read("path_rows"), top = golden_->read("path_top_ids");
    DraftState state = primed();
    for (int64_t depth = 0; depth < states.size(0); ++depth) {
      const int64_t rows = ids_.size(0) - 1 - depth;
      if (depth > 0) {
        const at::Tensor fed = ids_.slice(0, 1 + depth, 1 + depth + rows);
        state = drafter_->extend(state, at::arange(rows, at::kLong), fed, nullptr);
      }
      EXPECT_LT((state.hidden - states[depth].slice(0, 0, rows)).abs().max().item<double>(), tolerance)
          << depth;
      const DraftState some = state.rows(chosen);
      if (drafter_->frozen()) {
        EXPECT_TRUE(at::equal(model::guesses_of(*drafter_, some, 10).ids, top[depth])) << depth;
      } else {
        const at::Tensor own = drafter_->head_input(some).mm(drafter_->head(depth).dense.t());
        EXPECT_LT((own - logits[depth]).abs().max().item<double>(), tolerance) << depth;
      }
    }
  }

  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  std::optional<SafetensorsReader> golden_;
  at::Tensor ids_;
};

TEST_P(ReDrafterOfApple, StatesAndLogitsAreTheirs) {
  expect_golden(1e-5);
}

TEST_P(ReDrafterOfApple, FrozenHeadsMakeTheSameGuesses) {
  drafter_->freeze(at::kFloat);
  expect_golden(1e-5);
}

/// Their target's features are ours, too.
TEST_P(ReDrafterOfApple, TheTargetIsTheSame) {
  const auto read = test::read_text(*target_, test::to_ids(ids_), 1 << 20, {});
  const at::Tensor theirs = golden_->read("features").select(0, 0);
  EXPECT_LT((read.features.post_norm.to(at::kFloat) - theirs).abs().max().item<double>(), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Published, ReDrafterOfApple,
    testing::Values(
        ReDrafterCase{"redrafter", "target", {{"heads", 5}, {"layers", 2}}},
        ReDrafterCase{"redrafter-proj", "target-gqa", {{"heads", 5}, {"layers", 1}, {"exit_dim", 48}}},
        ReDrafterCase{"redrafter-sum", "target", {{"heads", 5}, {"layers", 1}, {"recurrence", "sum"}}}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace clover
