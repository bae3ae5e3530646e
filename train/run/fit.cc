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
#include "infer/program/run_after_validation.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/evaluate/acceptance.h"
#include "train/heads/heads_folder.h"
#include "train/run/estimate.h"
#include "train/run/folder_lock.h"
#include "train/run/rank_agreement.h"
#include "train/run/run_report.h"
#include "train/run/trainer.h"
#include "train/store/prompt_leakage.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A training run: the loop of steps, evaluations and checkpoints.  Only rank 0 evaluates and writes.
class Run {
 public:
  Run(FitJob& job, Communicator& ranks);
  int run();

 private:
  void forget_best();
  void discard_best(const std::string& damage);
  bool evaluation_due() const;
  void train_step();
  void save_features();
  void on_rank_zero(const std::function<void()>& work);
  void evaluate();
  void measure();
  nlohmann::json current_prompts() const;
  void remeasure_best();
  bool stop_requested();
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
  std::unique_ptr<RunReport> report_;       // null except in rank 0
  std::unique_ptr<Acceptance> acceptance_;  // null without held-out prompts
  bool features_unsaved_;                   // a feature file is asked for and not written yet
};

/// Prepares the locked run folder: writes run.toml, and removes temporary files of killed processes and
/// checkpoints after the one that is resumed.
void prepare_run_folder(const FitJob& job) {
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
      features_unsaved_(!settings_.feature_file.empty() && !fs::exists(settings_.feature_file)) {
  if (features_unsaved_ && !ranks_.is_only_rank()) {
    features_unsaved_ = false;  // with several processes none computes every sample's features
    if (ranks_.is_rank_zero())
      std::fprintf(stderr, "--feature-file %s will not be written: one process alone can\n",
                   settings_.feature_file.c_str());
  }
  if (job.checkpoint) restore_optimiser(*job.checkpoint, state_.step, trainer_.optimiser());
  // Without best/ (resumed in another folder, or removed) the next evaluation is the best one.
  if (!fs::exists(folder_ / "best"))
    forget_best();
  else if (const std::string damage = heads_damage(folder_ / "best"); !damage.empty())
    discard_best(damage);
  auto prompts = held_out_prompts(job.store, settings_.eval_prompts, job.target->config().context,
                                  settings_.eval_max_tokens);
  if (!prompts.empty()) {
    const AcceptanceSettings how{.max_tokens = settings_.eval_max_tokens};
    acceptance_ = std::make_unique<Acceptance>(*job.target, *job.tokenizer, std::move(prompts), how);
    if (ranks_.is_rank_zero()) warn_of_leaked_prompts(job.store, settings_.data);
  } else if (settings_.eval_prompts > 0 && ranks_.is_rank_zero()) {
    say_why_not_evaluated(job);
  }
  if (ranks_.is_rank_zero())
    report_ = std::make_unique<RunReport>(folder_, resume_step(job), state_.step, job.total_steps,
                                          trainer_.objective().terms());
}

void Run::forget_best() {
  state_.best = -1;
  state_.best_step = state_.evaluated_step = -1;
}

/// Forgets the heads in best/, which cannot be read; the next evaluation writes new ones.
void Run::discard_best(const std::string& damage) {
  forget_best();
  if (!ranks_.is_rank_zero()) return;
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
  const StepMetrics metrics = trainer_.step(state_.step);
  const double seconds = seconds_since(start);
  save_features();
  ++state_.step;
  state_.tokens += metrics.answer_tokens;
  state_.seconds += seconds * static_cast<double>(ranks_.rank().count);
  if (report_) report_->step(state_.step, trainer_.epoch_of(state_.step - 1), metrics, seconds);
}

void Run::save_features() {
  if (!features_unsaved_) return;
  const auto* all = trainer_.feature_cache().all_features(job_.store.size(data::Split::train));
  if (all == nullptr) return;
  features_unsaved_ = false;
  try {
    job_.feature_file().write(*all);
  } catch (const std::exception& error) {  // the file only saves time, so training continues
    report_->clear();
    std::fprintf(stderr, "--feature-file %s was not written: %s\n", settings_.feature_file.c_str(),
                 error.what());
  }
}

// Runs `work` in rank 0; the others wait until it has finished or was interrupted.
void Run::on_rank_zero(const std::function<void()>& work) {
  bool stopped = false;
  if (ranks_.is_rank_zero()) {
    try {
      work();
    } catch (const infer::Interrupted&) {
      stopped = true;
    }
  }
  if (ranks_.all_gather({stopped ? 1.0 : 0.0})[0][0] != 0) throw infer::Interrupted();
}

void Run::evaluate() {
  on_rank_zero([this] { measure(); });
  state_.evaluated_step = state_.step;
}

nlohmann::json Run::current_prompts() const {
  return {{"prompts", acceptance_->prompts().size()}, {"max_tokens", settings_.eval_max_tokens}};
}

/// Measures best/ again when the run is resumed with other evaluation prompts, so that later heads are
/// compared with it on the same prompts.
void Run::remeasure_best() {
  if (!acceptance_ || state_.best_step < 0 || state_.best_on.is_null() || state_.best_on == current_prompts())
    return;
  const nlohmann::json training =
      model::read_heads_info(folder_ / "best").config.value("training", nlohmann::json());
  if (training.is_object() && training.contains("steps") && training["steps"].is_number_integer())
    state_.best_step = training["steps"];  // best/ may be newer than the checkpoint
  report_->clear();
  std::fprintf(stderr, "other prompts than before to evaluate on: measuring best/, of step %lld, anew\n",
               static_cast<long long>(state_.best_step));
  std::shared_ptr<model::Drafter> best;
  try {
    best = model::load_heads(folder_ / "best", *job_.target, /*trainable=*/false);
  } catch (const std::exception& error) {
    return discard_best(error.what());
  }
  state_.best = acceptance_->measure(*best).tokens_per_step;
  state_.best_on = current_prompts();
}

/// Whether any rank got a signal to stop.  Signals may reach the ranks at different steps, so they agree on
/// it.
bool Run::stop_requested() {
  bool asked = false;
  for (const auto& rank : ranks_.all_gather({infer::interrupted() ? 1.0 : 0.0})) asked |= rank[0] != 0;
  return asked;
}

void Run::measure() {
  report_->clear();
  const AcceptanceMetrics metrics = acceptance_->measure(*job_.drafter);
  state_.evaluation = {{"step", state_.step},
                       {"tokens_per_step", metrics.tokens_per_step},
                       {"tokens", metrics.tokens},
                       {"passes", metrics.passes},
                       {"differs_from_plain", metrics.differs},
                       {"accepted_histogram", metrics.accepted_histogram},
                       {"by_category", metrics.by_category}};
  state_.evaluation.update(current_prompts());
  report_->evaluation(state_.step, state_.evaluation, metrics, acceptance_->prompts().size());
  // Set here for the heads and checkpoints written below; the other ranks set it in evaluate().
  state_.evaluated_step = state_.step;
  if (metrics.tokens_per_step > state_.best) {
    state_.best = metrics.tokens_per_step;
    state_.best_step = state_.step;
    state_.best_on = current_prompts();
    save_heads(folder_ / "best");
  }
}

nlohmann::json Run::about() const {
  nlohmann::json about = data_provenance(job_.store.about());
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
  // The checkpoint comes first: the heads can be made from it again.
  checkpoints_.save(state_, {job_.identity(), about()}, trainer_.optimiser(), job_.token_map,
                    settings_.keep_checkpoints);
  save_heads(folder_ / "last");
  report_->flush();
}

int Run::interrupted() {
  save_checkpoint();
  report_.reset();
  if (ranks_.is_rank_zero()) {
    std::fprintf(stderr,
                 "interrupted after step %lld of %lld; the same command with --resume auto continues\n",
                 static_cast<long long>(state_.step), static_cast<long long>(job_.total_steps));
  }
  return infer::exit_interrupted;
}

void Run::finish() {
  if (!report_) return;
  save_checkpoint();
  if (!acceptance_ && state_.best_step < 0) {  // without an evaluation the last heads are the best known
    save_heads(folder_ / "best");
  } else if (const std::string damage = heads_damage(folder_ / "best"); !damage.empty()) {
    report_->clear();
    std::fprintf(stderr, "best/ was damaged meanwhile, and holds the heads of the last step now: %s\n",
                 damage.c_str());
    save_heads(folder_ / "best");
  }
  report_.reset();
  if (features_unsaved_) {
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

int Run::run() {
  try {
    on_rank_zero([this] { remeasure_best(); });
    // Rank 0 may have changed the folder after others read it, so its state counts.
    const auto found = ranks_.all_gather({static_cast<double>(state_.evaluated_step)});
    state_.evaluated_step = static_cast<int64_t>(found[0][0]);
    if (evaluation_due()) {  // the run was interrupted during this evaluation
      evaluate();
      if (state_.step < job_.total_steps) save_checkpoint();  // which records the evaluation
    }
    while (state_.step < job_.total_steps) {
      train_step();
      if (stop_requested()) return interrupted();
      if (evaluation_due()) evaluate();
      if (state_.step % settings_.checkpoint_every != 0 && state_.step < job_.total_steps) continue;
      check_ranks_agree_on_weights(*job_.drafter, state_.step, ranks_);
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
    check_ranks_agree_on_job(job, ranks);
    ranks.use_device(job.target->device());
  } catch (const data::InputError&) {  // thrown in all ranks
    ranks.shut_down();
    throw;
  } catch (const std::exception& error) {
    ranks.abort(error.what());
    throw;
  }
  std::optional<FolderLock> lock;
  ranks.run_on_all_ranks([&] {
    if (!ranks.is_rank_zero()) return;
    lock.emplace(job.folders.output);
    prepare_run_folder(job);
  });
  infer::watch_for_interrupts();
  return infer::run_after_validation([&] {
    try {
      Run run(job, ranks);
      const int code = run.run();
      ranks.shut_down();
      return code;
    } catch (const std::exception& error) {
      ranks.abort(error.what());
      throw;
    }
  });
}

int dry_run(FitJob& job) {
  std::cout << job.settings.to_toml() << "\n# estimate\n";
  std::istringstream lines(
      estimate(job).dump(2));  // printed as comments, so that the output is a --config file
  for (std::string line; std::getline(lines, line);) std::cout << "# " << line << "\n";
  return infer::exit_done;
}

}  // namespace clover::train
