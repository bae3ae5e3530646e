#include "train/run/run_report.h"

#include <cstdio>
#include <string>

namespace clover::train {

RunReport::RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done,
                     int64_t total_steps)
    : log_(folder / "log.jsonl", resume_step),
      board_(folder, resume_step),
      progress_("training", total_steps, steps_done) {}

void RunReport::step(int64_t step, int64_t epoch, const StepFigures& figures, double seconds) {
  const double rate = static_cast<double>(figures.answer_tokens) / seconds;
  nlohmann::json line{{"step", step},
                      {"epoch", epoch},
                      {"loss", figures.loss},
                      {"lr", figures.rate},
                      {"grad_norm", figures.gradient_norm},
                      {"answer_tokens", figures.answer_tokens},
                      {"rows", figures.rows},
                      {"seconds", seconds},
                      {"answer_tokens_per_second", rate},
                      {"heads", nlohmann::json::array()}};
  board_.scalar("train/loss", figures.loss, step);
  board_.scalar("train/lr", figures.rate, step);
  board_.scalar("train/grad_norm", figures.gradient_norm, step);
  board_.scalar("train/answer_tokens_per_second", rate, step);
  std::string tops;
  for (size_t i = 0; i < figures.heads.size(); ++i) {
    const HeadFigures& head = figures.heads[i];
    line["heads"].push_back(
        {{"loss", head.mean_loss()}, {"top1", head.top(1)}, {"top5", head.top(5)}, {"labels", head.labels}});
    const std::string tag = "head" + std::to_string(i);
    board_.scalar(tag + "/loss", head.mean_loss(), step);
    board_.scalar(tag + "/top1", head.top(1), step);
    board_.scalar(tag + "/top5", head.top(5), step);
    char text[16];
    std::snprintf(text, sizeof text, "%s%.0f%%", i ? "/" : "", 100 * head.top(1));
    tops += text;
  }
  log_.write(line);
  char note[160];
  std::snprintf(note, sizeof note, "loss %.3f  top-1 %s  %.0f answer tokens/s", figures.loss, tops.c_str(),
                rate);
  progress_.update(step, note);
}

void RunReport::evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceFigures& figures,
                           size_t prompts) {
  log_.write({{"step", step}, {"evaluation", evaluation}, {"seconds", figures.seconds}});
  board_.scalar("evaluation/tokens_per_step", figures.tokens_per_step, step);
  board_.scalar("evaluation/differs_from_plain", static_cast<double>(figures.differs), step);
  board_.flush();
  progress_.clear();
  std::fprintf(
      stderr,
      "step %lld: %.3f tokens/step on %zu held-out prompts, %lld answers differ from plain decoding\n",
      static_cast<long long>(step), figures.tokens_per_step, prompts,
      static_cast<long long>(figures.differs));
}

}  // namespace clover::train
