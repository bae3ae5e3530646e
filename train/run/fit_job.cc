#include "train/run/fit_job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/unfinished_folder.h"
#include "infer/bench/training_cost.h"
#include "infer/program/machine.h"
#include "infer/program/rank.h"
#include "infer/requests/loaded_model.h"
#include "kernels/cpu/cpu_path.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/objective/objective.h"
#include "train/objective/token_map.h"
#include "train/optimiser/data_order.h"
#include "train/run/saved_drafter.h"
#include "train/store/store_check.h"
#include "train/store/store_tokenization.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

/// InputError if a run with these folders would overwrite something that is not its own.
void check_output(const FitFolders& folders, const fs::path& data) {
  std::error_code ignored;
  if (folders.output.empty())
    throw data::InputError("No output: give --output RUN_DIR, the folder of this run.");
  const bool holds_run =
      fs::exists(folders.output / "run.toml") || fs::exists(folders.output / "checkpoints");
  if (holds_run && folders.resume.empty()) {
    throw data::InputError(folders.output.string() +
                           " already holds a run: continue it with --resume auto, or give another --output.");
  }
  if (holds_run && folders.resume != "auto" &&
      !fs::equivalent(fs::absolute(folders.resume).lexically_normal().parent_path(),
                      folders.output / "checkpoints", ignored)) {
    throw data::InputError(folders.output.string() + " already holds a run, and --resume " + folders.resume +
                           " is none of its checkpoints: give another --output.");
  }
  for (const char* name : {"best", "last", "log.jsonl"}) {  // these would be overwritten
    if (!holds_run && fs::exists(folders.output / name))
      throw data::InputError(folders.output.string() + " holds " + name +
                             ", which is of no run: give another --output.");
  }
  if (fs::equivalent(folders.output, data, ignored))
    throw data::InputError(folders.output.string() + " holds the training data: give another --output.");
}

std::optional<fs::path> find_checkpoint(const FitFolders& folders) {
  if (folders.resume.empty()) return std::nullopt;
  if (folders.resume == "auto") return Checkpoints(folders.output).newest();
  return fs::path(folders.resume);
}

/// Calls `read`, which reads a checkpoint.  If the checkpoint is damaged and --resume auto chose it, the
/// InputError names the checkpoint before it.
template <class Read>
auto read_checkpoint_or_advise(const FitFolders& folders, const fs::path& checkpoint, const Read& read) {
  try {
    return read();
  } catch (const data::InputError& error) {
    const auto older = Checkpoints(folders.output).newest_before(checkpoint);
    if (folders.resume != "auto" || !older) throw;
    throw data::InputError(std::string(error.what()) +
                           " (The checkpoint before it may be whole: try --resume " + older->string() + ")");
  }
}

void check_samples(const data::TokenStore& store, const std::string& folder) {
  if (store.size(data::Split::train) == 0)
    throw data::InputError(folder + " holds no training samples: prepare it with a smaller --holdout.");
}

/// Gives settings that are "auto" the values of the run to resume, `before`, since the bits of the weights
/// depend on them.
void keep_resolved_settings(FitSettings& settings, const FitSettings& before) {
  if (settings.threads == 0) settings.threads = before.threads;
  if (settings.dtype == "auto") settings.dtype = before.dtype;
  if (settings.compute_dtype == "auto") settings.compute_dtype = before.compute_dtype;
  if (!before.init_heads.empty())
    settings.draft_vocab = before.draft_vocab;  // it is that of the initial heads
}

/// Sets used_samples to the samples that have a label in the draft vocabulary.  A step over other samples
/// alone would change the weights by momentum only.
void choose_samples(FitJob& job) {
  const int64_t samples = job.store.size(data::Split::train);
  const LabelMap label_map(job.token_map, job.target->config().vocab);
  std::vector<int64_t> all(samples);
  std::iota(all.begin(), all.end(), 0);
  std::ranges::copy_if(all, std::back_inserter(job.used_samples),
                       [&](int64_t index) { return has_draft_vocab_label(job.sample(index), label_map); });
  const int64_t unlabelled = samples - std::ssize(job.used_samples);
  if (job.used_samples.empty())
    throw data::InputError(job.settings.data +
                           " holds no sample with a label the heads could learn: give a "
                           "larger --max-length or --draft-vocab.");
  if (unlabelled > 0 && infer::Rank::from_environment().number == 0)
    std::fprintf(
        stderr,
        "%lld of %lld samples teach the heads nothing%s: too little of an answer within --max-length "
        "%lld, or no token of it in the heads' vocabulary\n",
        static_cast<long long>(unlabelled), static_cast<long long>(samples),
        job.includes_unlabelled ? "" : " and are left out", static_cast<long long>(job.settings.max_length));
  if (job.includes_unlabelled) job.used_samples = all;
}

/// What making the heads in `folder` took, for config.json of the heads that begin with them; null where they
/// do not record it.  Answers that the run learns from, too, are counted with the run.
nlohmann::json cost_of_initial_heads(const std::string& folder, const data::TokenStore& store) {
  const nlohmann::json config = model::read_heads_info(folder).config;
  auto cost = infer::training_cost(config);
  if (!cost) return nullptr;
  const nlohmann::json::json_pointer data("/training/data/content_hash");
  if (config.contains(data) && config.at(data) == store.metadata().at("content_hash"))
    cost->answers_seconds = cost->prepare_seconds = 0;
  return infer::to_json(*cost);
}

/// Makes the drafter of a new run, with fresh weights or those of --init-heads.
void make_new_drafter(FitJob& job) {
  const FitSettings& settings = job.settings;
  if (settings.init_heads.empty()) {
    job.token_map = frequent_tokens(job.store, settings.draft_vocab, job.target->config().vocab);
    choose_samples(job);
    job.drafter =
        model::make_drafter(settings.kind, settings.drafter_settings(), job.target->view(), job.token_map,
                            /*trainable=*/true, settings.seed);
    return;
  }
  job.drafter = model::load_heads(settings.init_heads, *job.target, /*trainable=*/true);
  job.initial_heads_cost = cost_of_initial_heads(settings.init_heads, job.store);
  job.token_map = job.drafter->head(0).token_map;
  job.settings.draft_vocab = job.token_map.defined() ? job.token_map.numel() : 0;
  if (job.drafter->kind() != settings.kind || job.drafter->settings() != settings.drafter_settings()) {
    throw data::InputError(settings.init_heads + " holds " + job.drafter->kind() + " heads with " +
                           job.drafter->settings().dump() + ", but the settings ask for " + settings.kind +
                           " with " + settings.drafter_settings().dump() +
                           ": give the settings of these heads.");
  }
  choose_samples(job);
}

/// Makes the drafter of the checkpoint and takes over its state.  InputError if the checkpoint belongs to a
/// run with other settings, another target or other data.
void restore_drafter(FitJob& job) {
  const SavedRun saved = read_checkpoint(*job.checkpoint);
  job.settings.check_continues(saved.identity.at("settings"));
  const nlohmann::json identity = job.identity();
  const auto refuse = [&](const char* what, const std::string& which) {
    throw data::InputError(job.checkpoint->string() + " belongs to another " + what + " (" +
                           saved.identity.at(what).get<std::string>() + which + ", not " +
                           identity.at(what).get<std::string>() +
                           "): continue with the one the run was started with.");
  };
  const std::string difference = job.target->difference_from(saved.identity.at("target").get<std::string>());
  if (!difference.empty()) refuse("target", ", " + difference);
  if (saved.identity.at("data") != identity.at("data")) refuse("data", "");
  job.drafter = read_checkpoint_or_advise(job.folders, *job.checkpoint, [&] {
    return make_saved_drafter(saved, *job.checkpoint, job.settings, *job.target);
  });
  job.token_map = saved.token_map;
  job.state = saved.state;
  const nlohmann::json training = saved.heads_metadata.value("training", nlohmann::json::object());
  if (training.is_object()) {
    job.initial_heads_cost = training.value("initial_heads", nlohmann::json());
    job.features_from_file = training.value("features_from_file", nlohmann::json()) == true;
  }
  // Older checkpoints record no number of samples; their runs use all of them.
  const auto samples = saved.identity.find("samples");
  job.includes_unlabelled = samples == saved.identity.end();
  choose_samples(job);
  if (!job.includes_unlabelled && *samples != job.used_samples.size())
    throw data::InputError(job.checkpoint->string() + " belongs to a run over " + samples->dump() +
                           " samples, and " + std::to_string(job.used_samples.size()) + " of " +
                           job.settings.data +
                           " teach these heads something: begin a new run in another folder.");
}

// Reads the feature file, or checks that it can be written.
void read_feature_file(FitJob& job) {
  const std::string& file = job.settings.feature_file;
  if (file.empty()) return;
  if (!std::filesystem::exists(file)) return data::check_writable(file);
  job.stored_features = job.feature_file().read(job.store.size(data::Split::train),
                                                job.target->config().hidden, job.target->dtype());
  if (!job.checkpoint) job.features_from_file = true;  // a resumed run may have written the file itself
}

}  // namespace

at::Device resolve_auto_settings(FitSettings& settings, at::ScalarType stored_dtype) {
  infer::ModelOptions device;
  device.device = settings.device;
  device.threads = static_cast<int>(settings.threads);
  const at::Device chosen = infer::open_device(device);
  settings.threads = at::get_num_threads();
  if (settings.dtype == "auto") settings.dtype = model::dtype_name(stored_dtype);
  if (settings.compute_dtype == "auto") {
    // On a CPU without bf16 instructions ATen emulates them, which is slower than fp32.
    const auto paths = kernels::available_cpu_paths();
    const bool fast = !chosen.is_cpu() ||
                      std::find(paths.begin(), paths.end(), kernels::CpuPath::avx512_bf16) != paths.end();
    settings.compute_dtype = fast ? "bfloat16" : "float32";
  }
  if (settings.feature_cache < 0) settings.feature_cache = infer::default_cache_bytes(at::kCPU);
  return chosen;
}

data::TokenStore::Sample FitJob::sample(int64_t index) const {
  auto sample = store.sample(data::Split::train, index);
  const size_t length = std::min(sample.ids.size(), static_cast<size_t>(settings.max_length));
  return {sample.ids.subspan(0, length), sample.supervised.subspan(0, length), sample.category};
}

std::vector<int64_t> FitJob::golden_ids() const {
  constexpr size_t max_golden = 128;
  const auto ids = sample(0).ids;
  return {ids.begin(), ids.begin() + std::min(max_golden, ids.size())};
}

FeatureFile FitJob::feature_file() const {
  auto identity = feature_identity(*target, store.metadata().at("content_hash"));
  identity["max-length"] = std::to_string(settings.max_length);
  return {settings.feature_file, identity, drafter->taps().layers, target->sampled_fingerprint()};
}

nlohmann::json FitJob::identity() const {
  nlohmann::json identity{{"settings", settings.to_json()},
                          {"target", target->fingerprint()},
                          {"data", store.metadata().at("content_hash")},
                          {"golden_ids", golden_ids()}};
  if (!includes_unlabelled) identity["samples"] = used_samples.size();
  return identity;
}

nlohmann::json FitJob::cost() const {
  return {{"seconds", state.seconds},
          {"device_seconds", state.device_seconds},
          {"evaluation_seconds", state.evaluation_seconds},
          {"joules", state.joules},
          {"operations", state.operations}};
}

nlohmann::json FitJob::heads_metadata(int64_t processes) const {
  nlohmann::json metadata = tokenization_of(store.metadata());
  metadata["training"] = {{"steps", state.step},
                          {"total_steps", total_steps},
                          {"answer_tokens", state.tokens},
                          {"processes", processes},
                          {"machine", infer::describe_machine(target->device())},
                          {"settings", settings.to_json()},
                          {"data", store.metadata()},
                          {"evaluation", state.evaluation}};
  metadata["training"].update(cost());
  if (features_from_file) metadata["training"]["features_from_file"] = true;
  if (!initial_heads_cost.is_null()) metadata["training"]["initial_heads"] = initial_heads_cost;
  return metadata;
}

std::vector<EvalPrompt> FitJob::evaluation_prompts() const {
  return held_out_prompts(store, settings.eval_prompts, target->config().context, settings.eval_max_tokens);
}

std::string FitJob::why_not_evaluated() const {
  if (store.size(data::Split::held_out) == 0)
    return settings.data + " holds no held-out samples (prepare --holdout)";
  return settings.data + " holds no held-out prompt that leaves room for --eval-max-tokens " +
         std::to_string(settings.eval_max_tokens) + " in the target's context of " +
         std::to_string(target->config().context);
}

FitJob prepare_job(FitSettings settings, const FitFolders& folders, TargetWeights weights) {
  const bool random = weights == TargetWeights::random;
  settings.check();
  check_output(folders, settings.data);
  const auto checkpoint = find_checkpoint(folders);
  if (checkpoint)  // a damaged one is refused before the target's weights are read
    keep_resolved_settings(settings, read_checkpoint_or_advise(folders, *checkpoint, [&] {
                             return settings_of_run(read_checkpoint(*checkpoint), *checkpoint);
                           }));
  const model::TargetConfig config =
      random ? model::TargetConfig::read_file(settings.target) : model::TargetConfig::read(settings.target);
  FitJob job{
      settings, folders, data::TokenStore::open(settings.data), nullptr, nullptr, nullptr, {}, checkpoint, {},
      0,        0};
  const StoreUse use{job.store, settings.data, settings.target};
  check_vocabulary(use, config);
  auto tokenizer = random ? nullptr : check_same_tokenizer_and_template(use);
  check_samples(job.store, settings.data);
  const at::Device device = resolve_auto_settings(job.settings, config.stored_dtype);
  if (random) {
    job.target = infer::random_target(settings.target, job.settings.dtype, device);
  } else {
    if (job.settings.eval_prompts > 0)
      job.tokenizer = tokenizer ? std::move(tokenizer) : data::Tokenizer::load(settings.target);
    job.target = model::Target::load(settings.target, model::parse_dtype(job.settings.dtype), device);
    check_prepared_for(use, *job.target);
  }
  checkpoint ? restore_drafter(job) : make_new_drafter(job);
  check_terms(LossTerms::parse(job.settings.loss), *job.drafter, config.hidden);
  if (job.settings.self_feed > 0 && !job.drafter->autoregressive())
    throw data::InputError("Setting --self-feed: heads of kind " + job.settings.kind +
                           " read no tokens, so that nothing can be fed to them; leave it out.");
  job.drafter->set_training_dtype(model::parse_dtype(job.settings.compute_dtype));

  const int64_t samples = job.store.size(data::Split::train);
  read_feature_file(job);
  for (int64_t i = 0; i < samples; ++i)
    job.longest_sample = std::max(job.longest_sample, static_cast<int64_t>(job.sample(i).ids.size()));
  if (job.longest_sample > config.context) {
    throw data::InputError("A sample of " + settings.data + " has " + std::to_string(job.longest_sample) +
                           " tokens, but " + settings.target + " reads " + std::to_string(config.context) +
                           ": give --max-length " + std::to_string(config.context) + ".");
  }
  const DataOrder order(std::ssize(job.used_samples), job.settings.batch, job.settings.seed);
  job.total_steps = job.settings.steps > 0
                        ? job.settings.steps
                        : std::max<int64_t>(1, std::llround(job.settings.epochs *
                                                            static_cast<double>(order.steps_per_epoch())));
  return job;
}

void prepare_run_folder(const FitJob& job) {
  const fs::path& folder = job.folders.output;
  data::remove_temporary_files(folder);
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

}  // namespace clover::train
