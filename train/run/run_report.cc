#include "train/run/run_report.h"

#include <cstdio>
#include <string>

namespace clover::train {

RunReport::RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done,
                     int64_t total_steps, const LossTerms& terms)
    : terms_(terms),
      log_(folder / "log.jsonl", resume_step),
      tensorboard_(folder, resume_step),
      progress_("training", total_steps, steps_done) {}

void RunReport::step(int64_t step, int64_t epoch, const StepMetrics& metrics, double seconds) {
  const double tokens_per_second = static_cast<double>(metrics.answer_tokens) / seconds;
  nlohmann::json line{{"step", step},
                      {"epoch", epoch},
                      {"loss", metrics.loss},
                      {"lr", metrics.learning_rate},
                      {"grad_norm", metrics.gradient_norm},
                      {"answer_tokens", metrics.answer_tokens},
                      {"rows", metrics.rows},
                      {"seconds", seconds},
                      {"answer_tokens_per_second", tokens_per_second},
                      {"heads", nlohmann::json::array()}};
  tensorboard_.scalar("train/loss", metrics.loss, step);
  tensorboard_.scalar("train/lr", metrics.learning_rate, step);
  tensorboard_.scalar("train/grad_norm", metrics.gradient_norm, step);
  tensorboard_.scalar("train/answer_tokens_per_second", tokens_per_second, step);
  std::string accuracies, term_values;  // for the note on the terminal
  if (terms_.count() > 1) {
    line["terms"] = terms_.to_json([&](LossTerm term) { return metrics.terms[static_cast<size_t>(term)]; });
    for (const auto& [name, value] : line["terms"].items()) {
      tensorboard_.scalar("train/" + name, value, step);
      char text[48];
      std::snprintf(text, sizeof text, "%s%s %.3f", term_values.empty() ? " (" : ", ", name.c_str(),
                    value.get<double>());
      term_values += text;
    }
    term_values += ")";
  }
  for (size_t i = 0; i < metrics.heads.size(); ++i) {
    const HeadMetrics& head = metrics.heads[i];
    line["heads"].push_back({{"loss", head.mean_loss()},
                             {"top1", head.top_k_accuracy(1)},
                             {"top5", head.top_k_accuracy(5)},
                             {"labels", head.labels}});
    if (terms_.count() > 1) {
      line["heads"].back()["terms"] =
          terms_.to_json([&](LossTerm term) { return head.per_row(head.terms[static_cast<size_t>(term)]); });
    }
    const std::string tag = "head" + std::to_string(i);
    tensorboard_.scalar(tag + "/loss", head.mean_loss(), step);
    tensorboard_.scalar(tag + "/top1", head.top_k_accuracy(1), step);
    tensorboard_.scalar(tag + "/top5", head.top_k_accuracy(5), step);
    char text[16];
    std::snprintf(text, sizeof text, "%s%.0f%%", i ? "/" : "", 100 * head.top_k_accuracy(1));
    accuracies += text;
  }
  log_.write(line);
  char note[320];
  std::snprintf(note, sizeof note, "loss %.3f%s  top-1 %s  %.0f answer tokens/s", metrics.loss,
                term_values.c_str(), accuracies.c_str(), tokens_per_second);
  progress_.update(step, note);
}

void RunReport::evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceMetrics& metrics,
                           size_t prompts) {
  log_.write({{"step", step}, {"evaluation", evaluation}, {"seconds", metrics.seconds}});
  tensorboard_.scalar("evaluation/tokens_per_step", metrics.tokens_per_step, step);
  tensorboard_.flush();
  progress_.clear();
  std::fprintf(stderr, "step %lld: %.3f tokens/step on %zu held-out prompts\n", static_cast<long long>(step),
               metrics.tokens_per_step, prompts);
}

}  // namespace clover::train
