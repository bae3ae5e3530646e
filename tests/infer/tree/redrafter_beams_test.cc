// The policy beam compared with the beams and packed trees of Apple's ReDrafter
// (tests/golden/drafters/redrafter/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "data/files/safetensors.h"
#include "infer/tree/grow.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/graph_runner.h"
#include "tests/infer/tree/stand_in_target.h"
#include "tests/support/goldens.h"

namespace clover::infer {
namespace {

using data::SafetensorsReader;
using nlohmann::json;

struct Case {
  const char* name;
  const char* target;
  json settings;
};

class BeamsOfApple : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto folder = test::goldens() / "drafters" / GetParam().name;
    target_ = model::Target::load(test::goldens() / "drafters" / GetParam().target, at::kFloat);
    golden_.emplace(SafetensorsReader::open(folder / "golden.safetensors"));
    beams_.emplace(SafetensorsReader::open(folder / "beams.safetensors"));
  }

  /// Loads Apple's heads.  `paired`: tokens 2 i and 2 i + 1 have the same probability, to test ties.
  void load(bool paired) {
    drafter_ = model::make_drafter("redrafter", GetParam().settings, target_->view(), {}, true, 1);
    const auto weights = SafetensorsReader::open(test::goldens() / "drafters" / GetParam().name /
                                                 "published" / "model.safetensors");
    const at::NoGradGuard no_grad;
    const int64_t layers = GetParam().settings.at("layers");
    for (auto& [name, value] : drafter_->named_parameters()) {
      at::Tensor theirs = weights.read(published(name, layers), value.sizes()).clone();
      if (paired && name.starts_with("vocabulary."))
        theirs = theirs.slice(0, 0, {}, 2).repeat_interleave(2, 0);
      value.copy_(theirs);
    }
    drafter_->freeze(at::kFloat);
  }

  static std::string published(std::string name, int64_t layers) {
    const auto begins = [&](const char* with, const std::string& by) {
      if (!name.starts_with(with)) return false;
      name = by + name.substr(std::string(with).size());
      return true;
    };
    begins("cell.token.", "rnn_w.") || begins("cell.state.", "rnn_u.") ||
        begins("projection.", "input_proj.") || begins("block", "lm_head.") ||
        begins("vocabulary.", "lm_head." + std::to_string(layers) + ".");
    return name;
  }

  std::vector<CandidateTree> grow_beams(int64_t width, int64_t length, const std::vector<int64_t>& contexts) {
    const at::Tensor features = golden_->read("contexts"), roots = golden_->read("roots");
    model::KvCache cache({1, 1, 8, at::kFloat, {1, 1, 1, 1}}, 1, 1);
    model::GraphRunner graph_runner(at::kCPU, true);
    model::DraftRunner draft(*drafter_, cache, 0, graph_runner);
    model::DraftInput input;
    model::Features rows;
    rows.post_norm = features.index_select(0, at::tensor(contexts, at::kLong)).contiguous();
    input.parts.push_back(rows);
    for (int32_t i = 0; i < std::ssize(contexts); ++i) {
      input.next_ids.push_back(roots[contexts[i]].item<int64_t>());
      input.segments.push_back({i, 0, 1});
    }
    GrowthRule rule{parse_policy("beam")};
    rule.width = width;
    rule.depth = length;
    const std::vector<GrowthLimit> limits(contexts.size(), {1 << 20, length});
    return grow(draft, input, rule, limits);
  }

  /// Expects that Apple's beam i is the i-th node of the tree's last level.
  void expect_beams(const CandidateTree& tree, const at::Tensor& beams, const at::Tensor& log_probs,
                    int64_t length, int64_t count) const {
    std::vector<int32_t> last;
    for (int32_t node = 0; node < tree.size(); ++node)
      if (tree.depth[node] == length) last.push_back(node);
    ASSERT_EQ(std::ssize(last), count);
    for (int64_t i = 0; i < count; ++i) {
      const at::Tensor theirs = beams[i].to(at::kLong).contiguous();
      ASSERT_EQ(path_to(tree, last[i]),
                Path(theirs.data_ptr<int64_t>(), theirs.data_ptr<int64_t>() + length + 1))
          << "beam " << i;
      EXPECT_NEAR(std::log(tree.proposed_probability[last[i]]), log_probs[i].item<float>(), 1e-5);
    }
  }

  /// Expects that Apple's packed tokens and their parents are those of the tree.
  void expect_packed(const CandidateTree& tree, const std::string& name, int64_t row) const {
    const at::Tensor packed = beams_->read(name + "packed")[row],
                     parents = beams_->read(name + "parents")[row];
    const int64_t kept = beams_->read(name + "kept")[row].item<int64_t>();
    std::set<Path> theirs, ours;
    std::vector<Path> paths(kept);
    for (int64_t i = 0; i < kept; ++i) {
      const int64_t parent = parents[i].item<int64_t>();
      if (parent >= 0) paths[i] = paths.at(parent);
      paths[i].push_back(packed[i].item<int64_t>());
      theirs.insert(paths[i]);
    }
    for (int32_t node = 0; node < tree.size(); ++node) ours.insert(path_to(tree, node));
    EXPECT_EQ(tree.size(), kept);
    EXPECT_EQ(ours, theirs);
  }

  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  std::optional<SafetensorsReader> golden_, beams_;
};

TEST_P(BeamsOfApple, LogProbabilitiesAndPackedTreesAreTheirs) {
  load(false);
  int64_t settings = 0;
  for (const int64_t width : {1, 2, 3, 4, 8, 16, 50, 64}) {
    for (int64_t length = 1; length <= 8; ++length) {
      const std::string name = "w" + std::to_string(width) + "_l" + std::to_string(length) + ".";
      if (!beams_->contains(name + "beams")) continue;
      SCOPED_TRACE(name);
      ++settings;
      const at::Tensor chosen = beams_->read(name + "context");
      const auto trees = grow_beams(width, length, {chosen[0].item<int64_t>(), chosen[1].item<int64_t>()});
      // Only 50 guesses of the root are possible: their further beams of one token have no meaning.
      const bool all_live = width <= 50 || length > 1;
      for (int64_t row = 0; row < 2; ++row) {
        ASSERT_NO_FATAL_FAILURE(expect_beams(trees[row], beams_->read(name + "beams")[row],
                                             beams_->read(name + "log_probs")[row], length,
                                             all_live ? width : 50));
        if (all_live) expect_packed(trees[row], name, row);
      }
    }
  }
  EXPECT_GE(settings, 9);
}

class TiedBeamsOfApple : public BeamsOfApple {};

TEST_P(TiedBeamsOfApple, TiesGoToTheFirstBeamThenToTheLowestToken) {
  load(true);
  for (const auto& [width, length] : {std::pair{1, 3}, {3, 2}, {4, 4}, {8, 3}}) {
    const std::string name = "ties_w" + std::to_string(width) + "_l" + std::to_string(length) + ".";
    SCOPED_TRACE(name);
    const auto trees = grow_beams(width, length, {0, 1});
    for (int64_t row = 0; row < 2; ++row)
      ASSERT_NO_FATAL_FAILURE(expect_beams(trees[row], golden_->read(name + "beams")[row],
                                           golden_->read(name + "log_probs")[row], length, width));
  }
}

const Case redrafter{"redrafter", "target", {{"heads", 5}, {"layers", 2}}};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Published, BeamsOfApple,
    testing::Values(redrafter,
                    Case{"redrafter-proj", "target-gqa", {{"heads", 5}, {"layers", 1}, {"exit_dim", 48}}},
                    Case{"redrafter-sum", "target", {{"heads", 5}, {"layers", 1}, {"recurrence", "sum"}}}),
    name_of);
INSTANTIATE_TEST_SUITE_P(Published, TiedBeamsOfApple, testing::Values(redrafter), name_of);

}  // namespace
}  // namespace clover::infer
