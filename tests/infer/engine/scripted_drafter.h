#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "model/drafters/drafter.h"
#include "tests/support/reading.h"

namespace clover::infer {

/// A drafter whose guesses are given by a function of the test: from a path (the sequence's number, then the
/// guesses so far) to the logits [V].  A row of its state holds one number, the index of its path in paths_.
class ScriptedDrafter : public model::Drafter {
 public:
  using Path = std::vector<int64_t>;
  using Script = std::function<std::vector<float>(const Path&)>;

  ScriptedDrafter(int64_t vocab, int64_t depth, Script script, at::Tensor token_map = {},
                  bool autoregressive = true)
      : ScriptedDrafter(identity_head(vocab), depth, std::move(script), token_map, autoregressive) {}

  std::string kind() const override { return "scripted"; }
  model::FeatureTaps taps() const override { return {}; }
  int64_t max_depth() const override { return depth_; }
  bool autoregressive() const override { return autoregressive_; }

  /// Row i is that of sequence number sequences[i].
  model::DraftState prime(const model::Features&, const at::Tensor&, std::span<const model::Segment>,
                          const at::Tensor& frontier, model::DraftKv*) override {
    std::vector<int64_t> numbers;
    for (const int64_t row : test::to_ids(frontier)) numbers.push_back(sequences.at(row));
    return start(numbers);
  }

  /// The state of these sequences at depth 0.
  model::DraftState start(const std::vector<int64_t>& sequences) {
    model::DraftState state{at::empty({std::ssize(sequences), 1}), 0};
    for (int64_t i = 0; i < std::ssize(sequences); ++i) state.hidden[i] = remember({sequences[i]});
    return state;
  }

  at::Tensor head_input(const model::DraftState& state) override {
    rows_evaluated.push_back(state.hidden.size(0));
    at::Tensor logits = at::empty({state.hidden.size(0), target_.head->outputs()});
    for (int64_t i = 0; i < logits.size(0); ++i) {
      const std::vector<float> row = script_(paths_[state.hidden[i].item<int64_t>()]);
      logits[i] = at::tensor(row);
    }
    return logits;
  }

  model::DraftState extend(const model::DraftState& state, const at::Tensor& parents, const at::Tensor& ids,
                           model::DraftKv*) override {
    model::DraftState next{at::empty({parents.size(0), 1}), state.depth + 1};
    for (int64_t i = 0; i < parents.size(0); ++i) {
      Path path = paths_[state.hidden[parents[i].item<int64_t>()].item<int64_t>()];
      path.push_back(autoregressive_ ? ids[i].item<int64_t>() : -1);
      next.hidden[i] = remember(std::move(path));
    }
    return next;
  }

  std::vector<int64_t> sequences;       // by row: the sequence numbers that `prime` uses
  std::vector<int64_t> rows_evaluated;  // for each call of `head_input` its number of rows

 private:
  struct Head {
    std::shared_ptr<kernels::PackedWeight> weight;
  };
  static Head identity_head(int64_t vocab) {
    return {std::make_shared<kernels::PackedWeight>(kernels::PackedWeight::pack({at::eye(vocab)}))};
  }
  ScriptedDrafter(Head head, int64_t depth, Script script, const at::Tensor& token_map, bool autoregressive)
      : Drafter({nullptr, head.weight.get(), head.weight.get(), nullptr, nullptr, at::kFloat}, token_map,
                false),
        weight_(std::move(head.weight)),
        depth_(depth),
        script_(std::move(script)),
        autoregressive_(autoregressive) {}
  int64_t remember(Path path) {
    paths_.push_back(std::move(path));
    return std::ssize(paths_) - 1;
  }

  std::shared_ptr<kernels::PackedWeight> weight_;
  int64_t depth_;
  Script script_;
  bool autoregressive_;
  std::vector<Path> paths_;
};

}  // namespace clover::infer
