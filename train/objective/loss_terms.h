#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace clover::train {

/// The terms of which a loss is a weighted sum.  Of one row at depth i: z are the drafter's logits and
/// q = softmax(z), y is the data's token, and h and P are the target's post-norm feature and its distribution
/// at the position before y, over the draft vocabulary.
enum class LossTerm {
  cross_entropy,    // -log q_y
  soft_labels,      // -sum_v P_v log q_v
  total_variation,  // 1 - a with a = sum_v min(P_v, q_v), the probability that sampling accepts the guess
  lk,               // -log a: the negative log-acceptance of "LK Losses", arXiv 2602.23881
  smooth_l1,        // mean over the width of SmoothL1(output - h), beta 1
};
constexpr size_t loss_term_count = 5;
inline constexpr std::array<const char*, loss_term_count> loss_term_names{
    "cross-entropy", "soft-labels", "total-variation", "lk", "smooth-l1"};

/// One number for each term.
using TermValues = std::array<double, loss_term_count>;

/// The weight of each term, 0 where the loss does not have it.  The weight of each head (--head-decay) is
/// Trainer::head_scale.
class LossTerms {
 public:
  LossTerms() = default;  // no term
  /// Terms joined by +, each with its weight before it unless that is 1: "cross-entropy",
  /// "soft-labels + 0.1 smooth-l1".  InputError for anything else.
  static LossTerms parse(const std::string& text);

  double operator[](LossTerm term) const { return weights_[static_cast<size_t>(term)]; }
  bool has(LossTerm term) const { return (*this)[term] > 0; }
  int64_t count() const;
  bool reads_vocabulary() const;  // whether a term needs the drafter's logits
  bool reads_target() const;      // whether a term needs the target's distribution: P
  double weighted_sum(const TermValues& values) const;
  /// {"soft-labels": value(LossTerm::soft_labels), ..} of the terms that the loss has.
  nlohmann::json named(const std::function<double(LossTerm)>& value) const;

 private:
  TermValues weights_{};
};

}  // namespace clover::train
