#include "train/run/run_report.h"

#include <cstdio>
#include <string>

namespace clover::train {

RunReport::RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done,
                     int64_t total_steps, const LossTerms& terms)
    : terms_(terms),
      log_(folder / "log.jsonl", resume_step),
      board_(folder, resume_step),
      progress_("training", total_steps, steps_done) {}

void RunReport::step(int64_t step, int64_t epoch, const StepMetrics& metrics, double seconds) {
  const double rate = static_cast<double>(metrics.answer_tokens) / seconds;
  nlohmann::json line{{"step", step},
                      {"epoch", epoch},
                      {"loss", metrics.loss},
                      {"lr", metrics.rate},
                      {"grad_norm", metrics.gradient_norm},
                      {"answer_tokens", metrics.answer_tokens},
                      {"rows", metrics.rows},
                      {"seconds", seconds},
                      {"answer_tokens_per_second", rate},
                      {"heads", nlohmann::json::array()}};
  board_.scalar("train/loss", metrics.loss, step);
  board_.scalar("train/lr", metrics.rate, step);
  board_.scalar("train/grad_norm", metrics.gradient_norm, step);
  board_.scalar("train/answer_tokens_per_second", rate, step);
  std::string tops, parts;
  if (terms_.count() > 1) {
    line["terms"] = terms_.named([&](LossTerm term) { return metrics.terms[static_cast<size_t>(term)]; });
    for (const auto& [name, value] : line["terms"].items()) {
      board_.scalar("train/" + name, value, step);
      char text[48];
      std::snprintf(text, sizeof text, "%s%s %.3f", parts.empty() ? " (" : ", ", name.c_str(),
                    value.get<double>());
      parts += text;
    }
    parts += ")";
  }
  for (size_t i = 0; i < metrics.heads.size(); ++i) {
    const HeadMetrics& head = metrics.heads[i];
    line["heads"].push_back(
        {{"loss", head.mean_loss()}, {"top1", head.top(1)}, {"top5", head.top(5)}, {"labels", head.labels}});
    if (terms_.count() > 1) {
      line["heads"].back()["terms"] =
          terms_.named([&](LossTerm term) { return head.mean(head.terms[static_cast<size_t>(term)]); });
    }
    const std::string tag = "head" + std::to_string(i);
    board_.scalar(tag + "/loss", head.mean_loss(), step);
    board_.scalar(tag + "/top1", head.top(1), step);
    board_.scalar(tag + "/top5", head.top(5), step);
    char text[16];
    std::snprintf(text, sizeof text, "%s%.0f%%", i ? "/" : "", 100 * head.top(1));
    tops += text;
  }
  log_.write(line);
  char note[320];
  std::snprintf(note, sizeof note, "loss %.3f%s  top-1 %s  %.0f answer tokens/s", metrics.loss, parts.c_str(),
                tops.c_str(), rate);
  progress_.update(step, note);
}

void RunReport::evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceMetrics& metrics,
                           size_t prompts) {
  log_.write({{"step", step}, {"evaluation", evaluation}, {"seconds", metrics.seconds}});
  board_.scalar("evaluation/tokens_per_step", metrics.tokens_per_step, step);
  board_.scalar("evaluation/differs_from_plain", static_cast<double>(metrics.differs), step);
  board_.flush();
  progress_.clear();
  std::fprintf(
      stderr,
      "step %lld: %.3f tokens/step on %zu held-out prompts, %lld answers differ from plain decoding\n",
      static_cast<long long>(step), metrics.tokens_per_step, prompts,
      static_cast<long long>(metrics.differs));
}

}  // namespace clover::train
