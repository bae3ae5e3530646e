#include "train/run/fit.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/unfinished_folder.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/once_begun.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/evaluate/acceptance.h"
#include "train/heads/heads_about.h"
#include "train/run/estimate.h"
#include "train/run/folder_lock.h"
#include "train/run/run_report.h"
#include "train/run/same_job.h"
#include "train/run/trainer.h"
#include "train/store/shared_prompts.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One run: the trainer, and all that is written about it, by rank 0 alone.
class Run {
 public:
  Run(FitJob& job, Communicator& ranks);
  int to_the_end();

 private:
  void forget_best();
  void give_up_best(const std::string& damage);
  bool evaluation_due() const;
  void train_step();
  void keep_features();
  void as_first(const std::function<void()>& work);
  void evaluate();
  void measure();
  nlohmann::json prompts_of_now() const;
  void judge_best_anew();
  bool stop_asked();
  void save_checkpoint();
  nlohmann::json about() const;
  void save_heads(const fs::path& folder);
  int interrupted();
  void finish();

  FitJob& job_;
  Communicator& ranks_;
  const FitSettings& settings_;
  fs::path folder_;
  RunState& state_;
  Trainer trainer_;
  Checkpoints checkpoints_;
  std::unique_ptr<RunReport> report_;       // of rank 0
  std::unique_ptr<Acceptance> acceptance_;  // null without held-out prompts
  bool features_wanted_;                    // on disk, and not there yet
};

/// The run's settings in its folder, which must be locked, and nothing that a killed process left there, nor
/// what came behind the checkpoint that is continued.
void begin_folder(const FitJob& job) {
  const fs::path& folder = job.folders.output;
  data::remove_temporaries(folder);
  data::write_file_atomically(folder / "run.toml", job.settings.to_toml());
  const Checkpoints checkpoints(folder);
  checkpoints.remove_leftovers();
  if (job.checkpoint) {
    std::string removed;
    for (const int64_t step : checkpoints.remove_later(job.state.step))
      removed += " " + checkpoints.at_step(step).filename().string();
    if (!removed.empty())
      std::fprintf(stderr, "going on behind step %lld; removed the later checkpoints:%s\n",
                   static_cast<long long>(job.state.step), removed.c_str());
  }
  for (const char* heads : {"best", "last"}) data::remove_unfinished(folder / heads);
}

int64_t resume_step(const FitJob& job) {
  return job.checkpoint ? job.state.step : -1;
}

void say_why_not_evaluated(const FitJob& job) {
  std::string why = "holds no held-out samples (prepare --holdout)";
  if (job.store.size(data::Split::held_out) > 0)
    why = "holds no held-out prompt that leaves room for --eval-max-tokens " +
          std::to_string(job.settings.eval_max_tokens) + " in the target's context of " +
          std::to_string(job.target->config().context);
  std::fprintf(stderr, "no evaluation: %s %s\n", job.settings.data.c_str(), why.c_str());
}

Run::Run(FitJob& job, Communicator& ranks)
    : job_(job),
      ranks_(ranks),
      settings_(job.settings),
      folder_(job.folders.output),
      state_(job.state),
      trainer_(job, ranks),
      checkpoints_(folder_),
      features_wanted_(!settings_.feature_file.empty() && !fs::exists(settings_.feature_file)) {
  if (features_wanted_ && !ranks_.alone()) {
    features_wanted_ = false;  // of these, none reads every sample
    if (ranks_.first())
      std::fprintf(stderr, "--feature-file %s will not be written: one process alone can\n",
                   settings_.feature_file.c_str());
  }
  if (job.checkpoint) restore_optimiser(*job.checkpoint, state_.step, trainer_.optimiser());
  // Of another run's checkpoint, or removed: what is measured next, here if it is due here, is the best.
  if (!fs::exists(folder_ / "best"))
    forget_best();
  else if (const std::string damage = damage_of_heads(folder_ / "best"); !damage.empty())
    give_up_best(damage);
  auto prompts = held_out_prompts(job.store, settings_.eval_prompts, job.target->config().context,
                                  settings_.eval_max_tokens);
  if (!prompts.empty()) {
    const AcceptanceSettings how{.max_tokens = settings_.eval_max_tokens};
    acceptance_ = std::make_unique<Acceptance>(*job.target, *job.tokenizer, std::move(prompts), how);
    if (ranks_.first()) say_shared_prompts(job.store, settings_.data);
  } else if (settings_.eval_prompts > 0 && ranks_.first()) {
    say_why_not_evaluated(job);
  }
  if (ranks_.first())
    report_ = std::make_unique<RunReport>(folder_, resume_step(job), state_.step, job.total_steps);
}

void Run::forget_best() {
  state_.best = -1;
  state_.best_step = state_.evaluated_step = -1;
}

/// Of heads that cannot be read: others take their place, and the run goes on.
void Run::give_up_best(const std::string& damage) {
  forget_best();
  if (!ranks_.first()) return;
  if (report_) report_->clear();
  std::fprintf(stderr, "best/ is damaged and will be written anew: %s\n", damage.c_str());
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
  state_.seconds += seconds * static_cast<double>(ranks_.rank().count);
  if (report_) report_->step(state_.step, trainer_.epoch_of(state_.step - 1), figures, seconds);
}

void Run::keep_features() {
  if (!features_wanted_) return;
  const auto* all = trainer_.features().all(job_.store.size(data::Split::train));
  if (all == nullptr) return;
  features_wanted_ = false;
  try {
    job_.feature_file().write(*all);
  } catch (const std::exception& error) {  // they only save time: training goes on
    report_->clear();
    std::fprintf(stderr, "--feature-file %s was not written: %s\n", settings_.feature_file.c_str(),
                 error.what());
  }
}

// Rank 0 decodes for all; the others wait to hear how that ended.
void Run::as_first(const std::function<void()>& work) {
  bool stopped = false;
  if (ranks_.first()) {
    try {
      work();
    } catch (const infer::Interrupted&) {
      stopped = true;
    }
  }
  if (ranks_.gather({stopped ? 1.0 : 0.0})[0][0] != 0) throw infer::Interrupted();
}

void Run::evaluate() {
  as_first([this] { measure(); });
  state_.evaluated_step = state_.step;
}

nlohmann::json Run::prompts_of_now() const {
  return {{"prompts", acceptance_->prompts().size()}, {"max_tokens", settings_.eval_max_tokens}};
}

/// What later heads are compared with, where the run goes on with other prompts than best/ was chosen on.
void Run::judge_best_anew() {
  if (!acceptance_ || state_.best_step < 0 || state_.best_on.is_null() || state_.best_on == prompts_of_now())
    return;
  const nlohmann::json training =
      model::read_heads_info(folder_ / "best").config.value("training", nlohmann::json());
  if (training.is_object() && training.contains("steps") && training["steps"].is_number_integer())
    state_.best_step = training["steps"];  // a killed run may have chosen better ones behind its checkpoint
  report_->clear();
  std::fprintf(stderr, "other prompts than before to evaluate on: measuring best/, of step %lld, anew\n",
               static_cast<long long>(state_.best_step));
  std::shared_ptr<model::Drafter> best;
  try {
    best = model::load_heads(folder_ / "best", *job_.target, /*trainable=*/false);
  } catch (const std::exception& error) {
    return give_up_best(error.what());
  }
  state_.best = acceptance_->measure(*best).tokens_per_step;
  state_.best_on = prompts_of_now();
}

/// Whether any rank was asked to stop: signals do not reach all of them between the same two steps.
bool Run::stop_asked() {
  bool asked = false;
  for (const auto& rank : ranks_.gather({infer::interrupted() ? 1.0 : 0.0})) asked |= rank[0] != 0;
  return asked;
}

void Run::measure() {
  report_->clear();
  const AcceptanceFigures figures = acceptance_->measure(*job_.drafter);
  state_.evaluation = {{"step", state_.step},
                       {"tokens_per_step", figures.tokens_per_step},
                       {"tokens", figures.tokens},
                       {"passes", figures.passes},
                       {"differs_from_plain", figures.differs},
                       {"accepted_histogram", figures.accepted_histogram},
                       {"by_category", figures.by_category}};
  state_.evaluation.update(prompts_of_now());
  report_->evaluation(state_.step, state_.evaluation, figures, acceptance_->prompts().size());
  // What a checkpoint after this may say; the other ranks hear of it when all is written.
  state_.evaluated_step = state_.step;
  if (figures.tokens_per_step > state_.best) {
    state_.best = figures.tokens_per_step;
    state_.best_step = state_.step;
    state_.best_on = prompts_of_now();
    save_heads(folder_ / "best");
  }
}

nlohmann::json Run::about() const {
  nlohmann::json about = origin_of_data(job_.store.about());
  about["training"] = {{"steps", state_.step},
                       {"total_steps", job_.total_steps},
                       {"answer_tokens", state_.tokens},
                       {"device_seconds", state_.seconds},
                       {"processes", ranks_.rank().count},
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
  if (!report_) return;
  // First: all else can be made of it.
  checkpoints_.save(state_, {job_.identity(), about()}, trainer_.optimiser(), job_.token_map,
                    settings_.keep_checkpoints);
  save_heads(folder_ / "last");
  report_->flush();
}

int Run::interrupted() {
  save_checkpoint();
  report_.reset();
  if (ranks_.first()) {
    std::fprintf(stderr,
                 "interrupted after step %lld of %lld; the same command with --resume auto continues\n",
                 static_cast<long long>(state_.step), static_cast<long long>(job_.total_steps));
  }
  return infer::exit_interrupted;
}

void Run::finish() {
  if (!report_) return;
  save_checkpoint();
  if (!acceptance_ && state_.best_step < 0) {  // nothing says that another step was better
    save_heads(folder_ / "best");
  } else if (const std::string damage = damage_of_heads(folder_ / "best"); !damage.empty()) {
    report_->clear();
    std::fprintf(stderr, "best/ was damaged meanwhile, and holds the heads of the last step now: %s\n",
                 damage.c_str());
    save_heads(folder_ / "best");
  }
  report_.reset();
  if (features_wanted_) {
    std::fprintf(stderr,
                 "--feature-file %s was not written: this process did not read every sample, or half of "
                 "--feature-cache does not hold them\n",
                 settings_.feature_file.c_str());
  }
  const double seconds = state_.seconds / static_cast<double>(ranks_.rank().count);
  std::fprintf(stderr, "%lld steps, %lld answer tokens, %.0f s (%.0f answer tokens/s); heads in %s\n",
               static_cast<long long>(state_.step), static_cast<long long>(state_.tokens), seconds,
               static_cast<double>(state_.tokens) / std::max(seconds, 1e-9), (folder_ / "best").c_str());
}

int Run::to_the_end() {
  try {
    as_first([this] { judge_best_anew(); });
    // Folders are read before rank 0 writes there; what it found is what counts.
    const auto found = ranks_.gather({static_cast<double>(state_.evaluated_step)});
    state_.evaluated_step = static_cast<int64_t>(found[0][0]);
    if (evaluation_due()) {  // it was interrupted there
      evaluate();
      if (state_.step < job_.total_steps) save_checkpoint();  // which knows of it
    }
    while (state_.step < job_.total_steps) {
      train_step();
      if (stop_asked()) return interrupted();
      if (evaluation_due()) evaluate();
      if (state_.step % settings_.checkpoint_every != 0 && state_.step < job_.total_steps) continue;
      check_same_weights(*job_.drafter, state_.step, ranks_);
      if (state_.step < job_.total_steps) save_checkpoint();
    }
  } catch (const infer::Interrupted&) {
    return interrupted();
  }
  finish();
  return infer::exit_done;
}

}  // namespace

int fit(FitJob& job, Communicator& ranks) {
  try {
    check_ranks(job.settings, ranks.rank());
    check_same_job(job, ranks);
    ranks.use(job.target->device());
  } catch (const data::InputError&) {  // all find it
    ranks.leave();
    throw;
  } catch (const std::exception& error) {
    ranks.give_up(error.what());
    throw;
  }
  std::optional<FolderLock> lock;
  ranks.together([&] {
    if (!ranks.first()) return;
    lock.emplace(job.folders.output);
    begin_folder(job);
  });
  infer::watch_for_interrupts();
  return infer::once_begun([&] {
    try {
      Run run(job, ranks);
      const int code = run.to_the_end();
      ranks.leave();
      return code;
    } catch (const std::exception& error) {
      ranks.give_up(error.what());
      throw;
    }
  });
}

int dry_run(FitJob& job) {
  std::cout << job.settings.to_toml() << "\n# estimate\n";
  std::istringstream lines(estimate(job).dump(2));  // as comments: what is printed is a --config file
  for (std::string line; std::getline(lines, line);) std::cout << "# " << line << "\n";
  return infer::exit_done;
}

}  // namespace clover::train
