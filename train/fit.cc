#include "train/fit.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>

#include "data/files.h"
#include "data/unfinished_folder.h"
#include "infer/exit_code.h"
#include "infer/interrupt.h"
#include "infer/machine.h"
#include "infer/progress.h"
#include "train/acceptance.h"
#include "train/estimate.h"
#include "train/folder_lock.h"
#include "train/heads_about.h"
#include "train/log.h"
#include "train/once_begun.h"
#include "train/tensorboard_events.h"
#include "train/trainer.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One run: the trainer, and all that is written about it.
class Run {
 public:
  explicit Run(FitJob& job);
  int to_the_end();

 private:
  bool evaluation_due() const;
  void train_step();
  void keep_features();
  void record(const StepFigures& figures, double seconds);
  void evaluate();
  void save_checkpoint();
  nlohmann::json about() const;
  void save_heads(const fs::path& folder);
  int interrupted();
  void finish();

  FitJob& job_;
  const FitSettings& settings_;
  fs::path folder_;
  RunState& state_;
  Trainer trainer_;
  Checkpoints checkpoints_;
  Log log_;
  TensorBoardWriter board_;
  std::unique_ptr<Acceptance> acceptance_;  // null without held-out prompts
  std::unique_ptr<infer::Progress> progress_;
  bool features_wanted_;  // on disk, and not there yet
};

/// The run's settings in its folder, which must be locked, and nothing that a killed process left there.
void begin_folder(const FitJob& job) {
  const fs::path& folder = job.folders.output;
  data::write_file_atomically(folder / "run.toml", job.settings.to_toml());
  Checkpoints(folder).remove_leftovers();
  for (const char* heads : {"best", "last"}) data::remove_unfinished(folder / heads);
}

int64_t resume_step(const FitJob& job) {
  return job.checkpoint ? job.state.step : -1;
}

Run::Run(FitJob& job)
    : job_(job),
      settings_(job.settings),
      folder_(job.folders.output),
      state_(job.state),
      trainer_(job),
      checkpoints_(folder_),
      log_(folder_ / "log.jsonl", resume_step(job)),
      board_(folder_, resume_step(job)),
      features_wanted_(!settings_.feature_file.empty() && !fs::exists(settings_.feature_file)) {
  if (job.checkpoint) restore_optimiser(*job.checkpoint, state_.step, trainer_.optimiser());
  if (!fs::exists(folder_ / "best")) {
    // Of another run's checkpoint, or removed: what is measured next, here if it is due here, is the best.
    state_.best = -1;
    state_.best_step = state_.evaluated_step = -1;
  }
  auto prompts = held_out_prompts(job.store, settings_.eval_prompts, job.target->config().context,
                                  settings_.eval_max_tokens);
  if (!prompts.empty()) {
    const AcceptanceSettings how{.max_tokens = settings_.eval_max_tokens};
    acceptance_ = std::make_unique<Acceptance>(*job.target, *job.tokenizer, std::move(prompts), how);
  }
}

bool Run::evaluation_due() const {
  if (!acceptance_ || state_.step == 0 || state_.evaluated_step == state_.step) return false;
  const bool at_interval = settings_.eval_every > 0 && state_.step % settings_.eval_every == 0;
  return at_interval || state_.step == job_.total_steps;
}

void Run::train_step() {
  const auto start = Clock::now();
  const StepFigures figures = trainer_.step(state_.step);
  const double seconds = seconds_since(start);
  keep_features();
  ++state_.step;
  state_.tokens += figures.answer_tokens;
  state_.seconds += seconds;
  record(figures, seconds);
}

void Run::keep_features() {
  if (!features_wanted_) return;
  const auto* all = trainer_.features().all(job_.store.size(data::Split::train));
  if (all == nullptr) return;
  features_wanted_ = false;
  try {
    job_.feature_file().write(*all);
  } catch (const std::exception& error) {  // they only save time: training goes on
    progress_->clear();
    std::fprintf(stderr, "--feature-file %s was not written: %s\n", settings_.feature_file.c_str(),
                 error.what());
  }
}

void Run::record(const StepFigures& figures, double seconds) {
  const double rate = static_cast<double>(figures.answer_tokens) / seconds;
  nlohmann::json line{{"step", state_.step},
                      {"epoch", trainer_.epoch_of(state_.step - 1)},
                      {"loss", figures.loss},
                      {"lr", figures.rate},
                      {"grad_norm", figures.gradient_norm},
                      {"answer_tokens", figures.answer_tokens},
                      {"rows", figures.rows},
                      {"seconds", seconds},
                      {"answer_tokens_per_second", rate},
                      {"heads", nlohmann::json::array()}};
  board_.scalar("train/loss", figures.loss, state_.step);
  board_.scalar("train/lr", figures.rate, state_.step);
  board_.scalar("train/grad_norm", figures.gradient_norm, state_.step);
  board_.scalar("train/answer_tokens_per_second", rate, state_.step);
  std::string tops;
  for (size_t i = 0; i < figures.heads.size(); ++i) {
    const HeadFigures& head = figures.heads[i];
    line["heads"].push_back(
        {{"loss", head.mean_loss()}, {"top1", head.top(1)}, {"top5", head.top(5)}, {"labels", head.labels}});
    const std::string tag = "head" + std::to_string(i);
    board_.scalar(tag + "/loss", head.mean_loss(), state_.step);
    board_.scalar(tag + "/top1", head.top(1), state_.step);
    board_.scalar(tag + "/top5", head.top(5), state_.step);
    char text[16];
    std::snprintf(text, sizeof text, "%s%.0f%%", i ? "/" : "", 100 * head.top(1));
    tops += text;
  }
  log_.write(line);
  char note[160];
  std::snprintf(note, sizeof note, "loss %.3f  top-1 %s  %.0f answer tokens/s", figures.loss, tops.c_str(),
                rate);
  progress_->update(state_.step, note);
}

void Run::evaluate() {
  progress_->clear();
  const AcceptanceFigures figures = acceptance_->measure(*job_.drafter);
  state_.evaluation = {{"step", state_.step},
                       {"tokens_per_step", figures.tokens_per_step},
                       {"tokens", figures.tokens},
                       {"passes", figures.passes},
                       {"differs_from_plain", figures.differs},
                       {"accepted_histogram", figures.accepted_histogram},
                       {"by_category", figures.by_category}};
  log_.write({{"step", state_.step}, {"evaluation", state_.evaluation}, {"seconds", figures.seconds}});
  board_.scalar("evaluation/tokens_per_step", figures.tokens_per_step, state_.step);
  board_.scalar("evaluation/differs_from_plain", static_cast<double>(figures.differs), state_.step);
  board_.flush();
  std::fprintf(
      stderr,
      "step %lld: %.3f tokens/step on %zu held-out prompts, %lld answers differ from plain decoding\n",
      static_cast<long long>(state_.step), figures.tokens_per_step, acceptance_->prompts().size(),
      static_cast<long long>(figures.differs));
  state_.evaluated_step = state_.step;
  if (figures.tokens_per_step > state_.best) {
    state_.best = figures.tokens_per_step;
    state_.best_step = state_.step;
    save_heads(folder_ / "best");
  }
}

nlohmann::json Run::about() const {
  nlohmann::json about = origin_of_data(job_.store.about());
  about["training"] = {{"steps", state_.step},
                       {"total_steps", job_.total_steps},
                       {"answer_tokens", state_.tokens},
                       {"device_seconds", state_.seconds},
                       {"machine", infer::describe_machine(job_.target->device())},
                       {"settings", settings_.to_json()},
                       {"data", job_.store.about()},
                       {"evaluation", state_.evaluation}};
  return about;
}

void Run::save_heads(const fs::path& folder) {
  write_heads(folder, *job_.drafter, *job_.target, about(), job_.golden_ids(), job_.target->dtype());
}

void Run::save_checkpoint() {
  save_heads(folder_ / "last");
  checkpoints_.save(state_, {job_.identity(), about()}, trainer_.optimiser(), job_.token_map,
                    settings_.keep_checkpoints);
  board_.flush();
}

int Run::interrupted() {
  save_checkpoint();
  progress_.reset();
  std::fprintf(stderr, "interrupted after step %lld of %lld; the same command with --resume auto continues\n",
               static_cast<long long>(state_.step), static_cast<long long>(job_.total_steps));
  return infer::exit_interrupted;
}

void Run::finish() {
  if (!acceptance_) save_heads(folder_ / "best");  // nothing says that another step was better
  save_checkpoint();
}

int Run::to_the_end() {
  progress_ = std::make_unique<infer::Progress>("training", job_.total_steps, state_.step);
  try {
    if (evaluation_due()) evaluate();  // it was interrupted there
    while (state_.step < job_.total_steps) {
      train_step();
      if (infer::interrupted()) return interrupted();
      if (evaluation_due()) evaluate();
      if (state_.step % settings_.checkpoint_every == 0 && state_.step < job_.total_steps) save_checkpoint();
    }
  } catch (const infer::Interrupted&) {
    return interrupted();
  }
  finish();
  progress_.reset();
  if (features_wanted_) {
    std::fprintf(stderr,
                 "--feature-file %s was not written: this process did not read every sample, or half of "
                 "--feature-cache does not hold them\n",
                 settings_.feature_file.c_str());
  }
  std::fprintf(stderr, "%lld steps, %lld answer tokens, %.0f s (%.0f answer tokens/s); heads in %s\n",
               static_cast<long long>(state_.step), static_cast<long long>(state_.tokens), state_.seconds,
               static_cast<double>(state_.tokens) / std::max(state_.seconds, 1e-9),
               (folder_ / "best").c_str());
  return infer::exit_done;
}

}  // namespace

int fit(FitJob& job) {
  const FolderLock lock(job.folders.output);
  infer::watch_for_interrupts();
  begin_folder(job);
  return once_begun([&] { return Run(job).to_the_end(); });
}

int dry_run(FitJob& job) {
  std::cout << job.settings.to_toml() << "\n# estimate\n";
  std::istringstream lines(estimate(job).dump(2));  // as comments: what is printed is a --config file
  for (std::string line; std::getline(lines, line);) std::cout << "# " << line << "\n";
  return infer::exit_done;
}

}  // namespace clover::train
