#include "train/run/fit.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "data/files/error.h"
#include "data/files/folder_lock.h"
#include "infer/program/energy_meter.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/run_after_input_checks.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/evaluate/acceptance.h"
#include "train/evaluate/target_answers.h"
#include "train/heads/heads_folder.h"
#include "train/run/operation_count.h"
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
  void count_energy(std::chrono::seconds max_age = std::chrono::seconds(0));
  StepMetrics step_with_operations();
  void save_features();
  void run_on_rank_zero(const std::function<void()>& work);
  void evaluate();
  void evaluate_and_save_best();
  nlohmann::json evaluation_size() const;
  void remeasure_best();
  bool stop_requested();
  void save_checkpoint();
  void save_heads(const fs::path& folder);
  int finish_interrupted();
  void finish();

  FitJob& job_;
  Communicator& ranks_;
  const FitSettings& settings_;
  fs::path folder_;
  RunState& state_;
  Trainer trainer_;
  Checkpoints checkpoints_;
  std::unique_ptr<RunReport> report_;              // null in ranks other than 0
  std::unique_ptr<TargetAnswers> target_answers_;  // null without held-out prompts
  std::unique_ptr<Acceptance> acceptance_;         // null without held-out prompts
  std::optional<infer::EnergyMeter> energy_;  // of this process; not set where the run's energy is not known
  double earlier_joules_;                     // of the run's earlier processes
  bool features_unsaved_;                     // whether a feature file is still to be written
  /// Floating-point operations of the drafter for an answer token; 0: not counted yet.
  double operations_per_token_ = 0;
};

Run::Run(FitJob& job, Communicator& ranks)
    : job_(job),
      ranks_(ranks),
      settings_(job.settings),
      folder_(job.folders.output),
      state_(job.state),
      trainer_(job, ranks),
      checkpoints_(folder_),
      earlier_joules_(state_.joules),
      features_unsaved_(!settings_.feature_file.empty() && !fs::exists(settings_.feature_file)) {
  if (features_unsaved_ && !ranks_.is_only_rank()) {
    features_unsaved_ = false;  // with several processes none computes every sample's features
    if (ranks_.is_rank_zero())
      std::fprintf(stderr, "--feature-file %s will not be written: one process alone can\n",
                   settings_.feature_file.c_str());
  }
  if (job.checkpoint) restore_weights_and_moments(*job.checkpoint, state_.step, trainer_.optimiser());
  // best/ may be missing: the run was resumed in another folder, or best/ was removed.
  if (!fs::exists(folder_ / "best"))
    forget_best();
  else if (const std::string damage = heads_damage(folder_ / "best"); !damage.empty())
    discard_best(damage);
  auto prompts = job.evaluation_prompts();
  if (!prompts.empty()) {
    target_answers_ =
        std::make_unique<TargetAnswers>(*job.target, *job.tokenizer, std::move(prompts),
                                        AnswerSettings{.max_tokens = settings_.eval_max_tokens,
                                                       .cache_bytes = job.evaluation_cache_bytes(),
                                                       .target_folder = settings_.target},
                                        job.drafter->taps());
    acceptance_ = std::make_unique<Acceptance>(*target_answers_, /*budget=*/4);
    if (ranks_.is_rank_zero()) warn_of_leaked_prompts(job.store, settings_.data);
  } else if (settings_.eval_prompts > 0 && ranks_.is_rank_zero()) {
    std::fprintf(stderr, "no evaluation: %s\n", job.why_not_evaluated().c_str());
  }
  if (ranks_.is_rank_zero())
    report_ = std::make_unique<RunReport>(folder_, job.checkpoint ? state_.step : -1, state_.step,
                                          job.total_steps, trainer_.objective().terms());
  const LoggedTime repeated = report_ ? report_->repeated() : LoggedTime{};
  state_.add_steps(repeated.steps, ranks_.rank().count);
  state_.evaluation_seconds += repeated.evaluations;
  // What a killed process used for steps that this one makes again is not known.
  const bool repeats = repeated.steps + repeated.evaluations > 0;
  if (!repeats && (state_.step == 0 || earlier_joules_ > 0))
    energy_ = infer::EnergyMeter::of_only_rank(job.target->device(), ranks_.rank().count);
}

/// Forgets which step was the best.  So the next evaluation counts as the best, and this step is evaluated
/// again if it is one that should be.
void Run::forget_best() {
  state_.best_tokens_per_step = -1;
  state_.best_step = state_.evaluated_step = -1;
}

/// Forgets the heads in best/, which cannot be read (`damage`: why); the next evaluation writes new ones.
void Run::discard_best(const std::string& damage) {
  forget_best();
  if (!ranks_.is_rank_zero()) return;
  if (report_) report_->clear_progress_line();
  std::fprintf(stderr, "best/ is damaged and will be written anew: %s\n", damage.c_str());
}

bool Run::evaluation_due() const {
  if (!acceptance_ || state_.step == 0 || state_.evaluated_step == state_.step) return false;
  const bool at_interval = settings_.eval_every > 0 && state_.step % settings_.eval_every == 0;
  return at_interval || state_.step == job_.total_steps;
}

void Run::train_step() {
  const auto start = Clock::now();
  const StepMetrics metrics = step_with_operations();
  const double seconds = seconds_since(start);
  save_features();
  ++state_.step;
  state_.tokens += metrics.answer_tokens;
  state_.add_steps(seconds, ranks_.rank().count);
  count_energy(std::chrono::seconds(1));
  if (report_) report_->step(state_.step, trainer_.epoch_of(state_.step - 1), metrics, seconds);
}

void Run::count_energy(std::chrono::seconds max_age) {
  const double own = energy_ ? energy_->joules(max_age) : 0;
  state_.joules = own > 0 ? earlier_joules_ + own : 0;
}

/// A step, whose floating-point operations are added to the run's.  The drafter's are counted in the first
/// step that has labels, then estimated as so many for each answer token.  The target's are two for each
/// weight of its layers and each row that it reads.
StepMetrics Run::step_with_operations() {
  const int64_t target_rows_before = trainer_.feature_cache().computed_rows();
  std::optional<OperationCount> count;
  if (operations_per_token_ == 0) count.emplace();
  StepMetrics metrics = trainer_.step(state_.step);
  // Each process knows its own share; all have about the same.
  const double processes = static_cast<double>(ranks_.rank().count);
  const auto tokens = static_cast<double>(metrics.answer_tokens);
  if (count && tokens > 0) operations_per_token_ = count->operations() * processes / tokens;
  const int64_t target_rows = trainer_.feature_cache().computed_rows() - target_rows_before;
  state_.operations += operations_per_token_ * tokens + 2 * job_.target->config().layer_parameter_count() *
                                                            static_cast<double>(target_rows) * processes;
  return metrics;
}

/// Writes the feature file as soon as all features are in the cache.
void Run::save_features() {
  if (!features_unsaved_) return;
  const auto* features = trainer_.feature_cache().all_features(job_.store.size(data::Split::train));
  if (features == nullptr) return;
  features_unsaved_ = false;
  try {
    job_.feature_file().write(*features);
  } catch (const std::exception& error) {  // the file only saves time, so training continues
    report_->clear_progress_line();
    std::fprintf(stderr, "--feature-file %s was not written: %s\n", settings_.feature_file.c_str(),
                 error.what());
  }
}

/// Runs `work` in rank 0, while the others wait for its end.  infer::Interrupted in all ranks if it was
/// interrupted.
void Run::run_on_rank_zero(const std::function<void()>& work) {
  bool was_interrupted = false;
  if (ranks_.is_rank_zero()) {
    try {
      work();
    } catch (const infer::Interrupted&) {
      was_interrupted = true;
    }
  }
  if (ranks_.all_gather({was_interrupted ? 1.0 : 0.0})[0][0] != 0) throw infer::Interrupted();
}

void Run::evaluate() {
  run_on_rank_zero([this] { evaluate_and_save_best(); });
  state_.evaluated_step = state_.step;
}

/// How many prompts an evaluation has, and how many tokens an answer at most (RunState::best_eval_size).
nlohmann::json Run::evaluation_size() const {
  return {{"prompts", target_answers_->prompts().size()}, {"max_tokens", settings_.eval_max_tokens}};
}

/// Measures best/ again when the run is resumed with other evaluation prompts, so that later heads are
/// compared with it on the same prompts.
void Run::remeasure_best() {
  if (!acceptance_ || state_.best_step < 0 || state_.best_eval_size.is_null() ||
      state_.best_eval_size == evaluation_size())
    return;
  const nlohmann::json training =
      model::read_heads_info(folder_ / "best").config.value("training", nlohmann::json());
  if (training.is_object() && training.contains("steps") && training["steps"].is_number_integer())
    state_.best_step = training["steps"];  // best/ may be newer than the checkpoint
  report_->clear_progress_line();
  std::fprintf(stderr, "other prompts than before to evaluate on: measuring best/, of step %lld, anew\n",
               static_cast<long long>(state_.best_step));
  std::shared_ptr<model::Drafter> best;
  try {
    best = model::load_heads(folder_ / "best", *job_.target, /*trainable=*/false);
  } catch (const std::exception& error) {
    return discard_best(error.what());
  }
  if (best->taps() != job_.drafter->taps())
    return discard_best("its heads read other features of the target");
  const AcceptanceMetrics metrics = acceptance_->measure(*best);
  state_.evaluation_seconds += metrics.seconds;
  state_.best_tokens_per_step = metrics.tokens_per_step;
  state_.best_eval_size = evaluation_size();
}

/// Whether a rank got a signal to stop.  Signals may reach the ranks at different steps, so the ranks
/// exchange this.
bool Run::stop_requested() {
  bool requested = false;
  for (const auto& rank : ranks_.all_gather({infer::interrupted() ? 1.0 : 0.0})) requested |= rank[0] != 0;
  return requested;
}

/// Evaluates the current heads, in rank 0, and saves them as best/ if they are the best so far.
void Run::evaluate_and_save_best() {
  report_->clear_progress_line();
  const AcceptanceMetrics metrics = acceptance_->measure(*job_.drafter);
  state_.evaluation_seconds += metrics.seconds;
  count_energy();
  state_.evaluation = {{"step", state_.step},
                       {"tokens_per_step", metrics.tokens_per_step},
                       {"tokens", metrics.tokens},
                       {"passes", metrics.passes},
                       {"accepted_histogram", metrics.accepted_histogram},
                       {"by_category", metrics.by_category}};
  state_.evaluation.update(evaluation_size());
  report_->evaluation(state_.step, state_.evaluation, metrics, target_answers_->prompts().size());
  state_.evaluated_step = state_.step;  // here, too: an interruption may keep evaluate() from setting it
  if (metrics.tokens_per_step > state_.best_tokens_per_step) {
    state_.best_tokens_per_step = metrics.tokens_per_step;
    state_.best_step = state_.step;
    state_.best_eval_size = evaluation_size();
    save_heads(folder_ / "best");
  }
}

void Run::save_heads(const fs::path& folder) {
  write_heads(folder, *job_.drafter, *job_.target, job_.heads_metadata(ranks_.rank().count),
              job_.golden_ids(), job_.target->dtype());
}

/// Writes a checkpoint and last/, in rank 0.
void Run::save_checkpoint() {
  if (!report_) return;
  count_energy();
  // The checkpoint comes first, since the heads can be made from it again.
  checkpoints_.save(state_, {job_.identity(), job_.heads_metadata(ranks_.rank().count)}, trainer_.optimiser(),
                    job_.token_map, settings_.keep_checkpoints);
  save_heads(folder_ / "last");
  if (state_.best_step >= 0) write_cost_of_run(folder_ / "best", job_.cost());
  report_->flush();
}

/// Saves the state after a signal and returns the exit code.
int Run::finish_interrupted() {
  save_checkpoint();
  report_.reset();
  if (ranks_.is_rank_zero()) {
    std::fprintf(stderr,
                 "interrupted after step %lld of %lld; the same command with --resume auto continues\n",
                 static_cast<long long>(state_.step), static_cast<long long>(job_.total_steps));
  }
  return infer::exit_interrupted;
}

/// Ends the run, in rank 0: writes the last checkpoint and last/.  Writes best/ too, if no step was ever
/// evaluated, or if best/ is missing or damaged.
void Run::finish() {
  if (!report_) return;
  save_checkpoint();
  if (!acceptance_ && state_.best_step < 0) {  // without an evaluation the last heads count as the best
    save_heads(folder_ / "best");
  } else if (const std::string damage = heads_damage(folder_ / "best"); !damage.empty()) {
    report_->clear_progress_line();
    std::fprintf(stderr, "best/ was damaged meanwhile, and holds the heads of the last step now: %s\n",
                 damage.c_str());
    save_heads(folder_ / "best");
  }
  report_.reset();
  if (features_unsaved_) {
    std::fprintf(stderr,
                 "--feature-file %s was not written: this run ended before it had read every sample, or "
                 "their features do not fit in half of --feature-cache\n",
                 settings_.feature_file.c_str());
  }
  std::fprintf(stderr, "%lld steps, %lld answer tokens, %.0f s (%.0f answer tokens/s); heads in %s\n",
               static_cast<long long>(state_.step), static_cast<long long>(state_.tokens), state_.seconds,
               static_cast<double>(state_.tokens) / std::max(state_.seconds, 1e-9),
               (folder_ / "best").c_str());
}

int Run::run() {
  try {
    run_on_rank_zero([this] { remeasure_best(); });
    // remeasure_best may have forgotten best/ in rank 0 alone; all must know that an evaluation is due.
    const auto evaluated_steps = ranks_.all_gather({static_cast<double>(state_.evaluated_step)});
    state_.evaluated_step = static_cast<int64_t>(evaluated_steps[0][0]);
    if (evaluation_due()) {  // the resumed run was interrupted during it, or best/ is lost
      evaluate();
      if (state_.step < job_.total_steps) save_checkpoint();  // it records the evaluation
    }
    while (state_.step < job_.total_steps) {
      train_step();
      if (stop_requested()) return finish_interrupted();
      if (evaluation_due()) evaluate();
      if (state_.step % settings_.checkpoint_every != 0 && state_.step < job_.total_steps) continue;
      check_ranks_agree_on_weights(*job_.drafter, state_.step, ranks_);
      if (state_.step < job_.total_steps) save_checkpoint();
    }
  } catch (const infer::Interrupted&) {
    return finish_interrupted();
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
  std::optional<data::FolderLock> lock;
  // Rank 0 alone works; the others wait for it, and fail if it fails.
  ranks.run_on_all_ranks([&] {
    if (!ranks.is_rank_zero()) return;
    lock.emplace(job.folders.output);
    prepare_run_folder(job);
  });
  infer::watch_for_interrupts();
  return infer::run_after_input_checks([&] {
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

}  // namespace clover::train
