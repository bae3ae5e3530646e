#include "train/evaluate/eval_report.h"

#include <cstdio>

#include "infer/program/machine.h"

namespace clover::train {
namespace {

/// [top_ranks]: entry k - 1 is the top-k accuracy.
std::vector<double> top_k_accuracies(const HeadMetrics& metrics) {
  std::vector<double> shares;
  for (int64_t k = 1; k <= top_ranks; ++k) shares.push_back(metrics.top_k_accuracy(k));
  return shares;
}

nlohmann::json heads_of(const Accuracy& accuracy) {
  nlohmann::json heads = nlohmann::json::array();
  for (size_t i = 0; i < accuracy.teacher_forced.size(); ++i) {
    heads.push_back({{"head", i},
                     {"labels", accuracy.teacher_forced[i].labels},
                     {"teacher_forced", top_k_accuracies(accuracy.teacher_forced[i])},
                     {"own_guesses", top_k_accuracies(accuracy.own_guesses[i])}});
  }
  return heads;
}

/// {name: mean over the rows} for each term of `loss`.
nlohmann::json terms_of(const HeadMetrics& metrics, const std::string& loss) {
  return LossTerms::parse(loss).to_json(
      [&](LossTerm term) { return metrics.per_row(metrics.terms[static_cast<size_t>(term)]); });
}

}  // namespace

nlohmann::json eval_report(const EvalMetrics& metrics, const EvalSettings& settings, int64_t samples) {
  const AcceptanceMetrics& decoder = metrics.decoder;
  nlohmann::json categories = nlohmann::json::object(), positions = nlohmann::json::array();
  for (const auto& [category, accuracy] : metrics.by_category) {
    categories[category] = {{"heads", heads_of(accuracy)}};
    if (decoder.by_category.contains(category))
      categories[category]["tokens_per_step"] = decoder.by_category[category];
  }
  for (const auto& [bucket, accuracy] : metrics.by_position) {
    positions.push_back(
        {{"from", bucket_begin(bucket)}, {"to", bucket_begin(bucket + 1)}, {"heads", heads_of(accuracy)}});
  }
  nlohmann::json heads = heads_of(metrics.overall);
  for (size_t i = 0; i < metrics.losses.size(); ++i)
    heads[i]["loss"] = terms_of(metrics.losses[i], settings.loss);
  return {{"machine", infer::describe_machine()},
          {"build", infer::describe_build()},
          {"samples", samples},
          {"tokens_per_step", decoder.tokens_per_step},
          {"decoder",
           {{"policy", "clover"},
            {"budget", settings.budget},
            {"max_tokens", settings.answers.max_tokens},
            {"tokens", decoder.tokens},
            {"passes", decoder.passes},
            {"answers", metrics.decoded},
            {"answers_of_target", metrics.confirmed},
            {"accepted_histogram", decoder.accepted_histogram}}},
          {"heads", heads},
          {"by_category", categories},
          {"by_position", positions}};
}

void show_eval_report(const nlohmann::json& report) {
  const nlohmann::json split = report.value("split", nlohmann::json());
  std::fprintf(stderr, "%lld samples of %s\n", static_cast<long long>(report["samples"].get<int64_t>()),
               split == "train"      ? "the TRAINING split: figures of what was learned, not of what is new"
               : split == "held_out" ? "the held-out split"
                                     : "the input");
  std::fprintf(stderr, "%.3f tokens/step on the target's own answers; the input has %lld of these %lld\n",
               report["tokens_per_step"].get<double>(),
               static_cast<long long>(report["decoder"]["answers_of_target"].get<int64_t>()),
               static_cast<long long>(report["decoder"]["answers"].get<int64_t>()));
  if (report["heads"][0]["labels"] == 0)
    std::fprintf(
        stderr, "no answer is long enough to score the heads on: the first they guess is the second token\n");
  std::fprintf(stderr, "head   labels   top-1   top-5  top-10   top-1 on its own guesses\n");
  for (const auto& head : report["heads"]) {
    const auto& forced = head["teacher_forced"];
    std::fprintf(stderr, "%4lld %8lld  %5.1f%%  %5.1f%%  %5.1f%%   %5.1f%%\n",
                 static_cast<long long>(head["head"].get<int64_t>()),
                 static_cast<long long>(head["labels"].get<int64_t>()), 100 * forced[0].get<double>(),
                 100 * forced[4].get<double>(), 100 * forced[9].get<double>(),
                 100 * head["own_guesses"][0].get<double>());
  }
  for (const auto& head : report["heads"]) {
    if (!head.contains("loss")) continue;
    std::string terms;
    for (const auto& [name, value] : head["loss"].items()) {
      char text[48];
      std::snprintf(text, sizeof text, "  %s %.3f", name.c_str(), value.get<double>());
      terms += text;
    }
    std::fprintf(stderr, "%4lld%s\n", static_cast<long long>(head["head"].get<int64_t>()), terms.c_str());
  }
}

}  // namespace clover::train
