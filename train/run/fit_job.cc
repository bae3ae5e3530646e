#include "train/run/fit_job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>

#include "data/files/error.h"
#include "data/files/files.h"
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
#include "train/store/store_text.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

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
  for (const char* name : {"best", "last", "log.jsonl"}) {  // which would be replaced
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

/// What `read` makes of a checkpoint; of one that --resume auto chose and that is damaged, the error names
/// the one before it.
template <class Read>
auto read_chosen(const FitFolders& folders, const fs::path& checkpoint, const Read& read) {
  try {
    return read();
  } catch (const data::InputError& error) {
    const auto older = Checkpoints(folders.output).before(checkpoint);
    if (folders.resume != "auto" || !older) throw;
    throw data::InputError(std::string(error.what()) +
                           " (The checkpoint before it may be whole: try --resume " + older->string() + ")");
  }
}

void check_samples(const data::TokenStore& store, const std::string& folder) {
  if (store.size(data::Split::train) == 0)
    throw data::InputError(folder + " holds no training samples: prepare it with a smaller --holdout.");
}

/// What was left to the machine stays as it was where the run began: bits depend on it.
void keep_choices(FitSettings& settings, const FitSettings& before) {
  if (settings.threads == 0) settings.threads = before.threads;
  if (settings.dtype == "auto") settings.dtype = before.dtype;
  if (settings.compute_dtype == "auto") settings.compute_dtype = before.compute_dtype;
  if (!before.init_heads.empty()) settings.draft_vocab = before.draft_vocab;  // of these heads
}

/// The samples that teach the heads something; the others, of which too little of an answer is left, would be
/// steps that move weights by momentum alone.
void choose_order(FitJob& job) {
  const int64_t samples = job.store.size(data::Split::train);
  const LabelMap label_map(job.token_map, job.target->config().vocab);
  std::vector<int64_t> all(samples);
  std::iota(all.begin(), all.end(), 0);
  std::ranges::copy_if(all, std::back_inserter(job.order),
                       [&](int64_t index) { return has_sayable_label(job.sample(index), label_map); });
  const int64_t useless = samples - std::ssize(job.order);
  if (job.order.empty())
    throw data::InputError(job.settings.data +
                           " holds no sample with a label the heads could learn: give a "
                           "larger --max-length or --draft-vocab.");
  if (useless > 0 && infer::Rank::of_launcher().number == 0)
    std::fprintf(
        stderr,
        "%lld of %lld samples teach the heads nothing%s: too little of an answer within --max-length "
        "%lld, or no token of it in the heads' vocabulary\n",
        static_cast<long long>(useless), static_cast<long long>(samples),
        job.counts_all ? "" : " and are left out", static_cast<long long>(job.settings.max_length));
  if (job.counts_all) job.order = all;
}

/// The drafter a new run begins with.
void begin_drafter(FitJob& job) {
  const FitSettings& settings = job.settings;
  if (settings.init_heads.empty()) {
    job.token_map = frequent_tokens(job.store, settings.draft_vocab, job.target->config().vocab);
    choose_order(job);
    job.drafter = model::make_drafter(settings.kind, settings.drafter(), job.target->view(), job.token_map,
                                      /*trainable=*/true, settings.seed);
    return;
  }
  job.drafter = model::load_heads(settings.init_heads, *job.target, /*trainable=*/true);
  job.token_map = job.drafter->head(0).token_map;
  job.settings.draft_vocab = job.token_map.defined() ? job.token_map.numel() : 0;
  if (job.drafter->kind() != settings.kind || job.drafter->settings() != settings.drafter()) {
    throw data::InputError(settings.init_heads + " holds " + job.drafter->kind() + " heads with " +
                           job.drafter->settings().dump() + ", but the settings ask for " + settings.kind +
                           " with " + settings.drafter().dump() + ": give the settings of these heads.");
  }
  choose_order(job);
}

void continue_drafter(FitJob& job) {
  const SavedRun saved = read_checkpoint(*job.checkpoint);
  job.settings.check_continues(saved.identity.at("settings"));
  const nlohmann::json own = job.identity();
  const auto refuse = [&](const char* what, const std::string& which) {
    throw data::InputError(job.checkpoint->string() + " belongs to another " + what + " (" +
                           saved.identity.at(what).get<std::string>() + which + ", not " +
                           own.at(what).get<std::string>() +
                           "): continue with the one the run was started with.");
  };
  const std::string other = job.target->difference_from(saved.identity.at("target").get<std::string>());
  if (!other.empty()) refuse("target", ", " + other);
  if (saved.identity.at("data") != own.at("data")) refuse("data", "");
  job.drafter = read_chosen(job.folders, *job.checkpoint, [&] {
    return make_saved_drafter(saved, *job.checkpoint, job.settings, *job.target);
  });
  job.token_map = saved.token_map;
  job.state = saved.state;
  // Runs of before their checkpoints said how many go on in the order of all.
  const auto samples = saved.identity.find("samples");
  job.counts_all = samples == saved.identity.end();
  choose_order(job);
  if (!job.counts_all && *samples != job.order.size())
    throw data::InputError(job.checkpoint->string() + " belongs to a run over " + samples->dump() +
                           " samples, and " + std::to_string(job.order.size()) + " of " + job.settings.data +
                           " teach these heads something: begin a new run in another folder.");
}

// Refused here, before anything is written.
void read_feature_file(FitJob& job) {
  const std::string& file = job.settings.feature_file;
  if (file.empty()) return;
  if (!std::filesystem::exists(file)) return data::check_can_write(file);
  job.features = job.feature_file().read(job.store.size(data::Split::train), job.target->config().hidden,
                                         job.target->dtype());
}

}  // namespace

at::Device resolve(FitSettings& settings) {
  infer::ModelOptions device;
  device.device = settings.device;
  device.threads = static_cast<int>(settings.threads);
  const at::Device chosen = infer::prepare_device(device);
  settings.threads = at::get_num_threads();
  if (settings.dtype == "auto") {
    settings.dtype = model::dtype_name(model::TargetConfig::read(settings.target).stored_dtype);
  }
  if (settings.compute_dtype == "auto") {
    // Without bf16 products in hardware ATen emulates them, slower than fp32.
    const auto paths = kernels::available_cpu_paths();
    const bool fast = !chosen.is_cpu() ||
                      std::find(paths.begin(), paths.end(), kernels::CpuPath::avx512_bf16) != paths.end();
    settings.compute_dtype = fast ? "bfloat16" : "float32";
  }
  if (settings.feature_cache < 0) settings.feature_cache = infer::memory_for_cache(at::kCPU);
  return chosen;
}

data::TokenStore::Sample FitJob::sample(int64_t index) const {
  auto sample = store.sample(data::Split::train, index);
  const size_t length = std::min(sample.ids.size(), static_cast<size_t>(settings.max_length));
  return {sample.ids.subspan(0, length), sample.supervised.subspan(0, length), sample.category};
}

std::vector<int64_t> FitJob::golden_ids() const {
  constexpr size_t longest_golden = 128;
  const auto ids = sample(0).ids;
  return {ids.begin(), ids.begin() + std::min(longest_golden, ids.size())};
}

FeatureFile FitJob::feature_file() const {
  return {settings.feature_file,
          {{"target", target->fingerprint()},
           {"data", store.about().at("content_hash").get<std::string>()},
           {"dtype", settings.dtype},
           {"kernels", target->device().is_cpu() ? kernels::to_string(kernels::cpu_path()) : "cuda"},
           {"max-length", std::to_string(settings.max_length)}},
          drafter->features().layers,
          target->sampled_fingerprint()};
}

nlohmann::json FitJob::identity() const {
  nlohmann::json all{{"settings", settings.to_json()},
                     {"target", target->fingerprint()},
                     {"data", store.about().at("content_hash")},
                     {"golden_ids", golden_ids()}};
  if (!counts_all) all["samples"] = order.size();
  return all;
}

FitJob prepare_job(FitSettings settings, const FitFolders& folders) {
  settings.check();
  check_output(folders, settings.data);
  const auto checkpoint = find_checkpoint(folders);
  if (checkpoint)  // a broken one is refused before gigabytes are read
    keep_choices(settings, read_chosen(folders, *checkpoint, [&] {
                   return settings_of_run(read_checkpoint(*checkpoint), *checkpoint);
                 }));
  const model::TargetConfig config = model::TargetConfig::read(settings.target);
  FitJob job{
      settings, folders, data::TokenStore::open(settings.data), nullptr, nullptr, nullptr, {}, checkpoint, {},
      0,        0};
  const StoreUse use{job.store, settings.data, settings.target};
  check_vocabulary(use, config);
  auto tokenizer = check_same_text_form(use);
  check_samples(job.store, settings.data);
  const at::Device device = resolve(job.settings);
  if (job.settings.eval_prompts > 0)
    job.tokenizer = tokenizer ? std::move(tokenizer) : data::Tokenizer::load(settings.target);
  job.target = model::Target::load(settings.target, model::parse_dtype(job.settings.dtype), device);
  check_prepared_for(use, *job.target);
  checkpoint ? continue_drafter(job) : begin_drafter(job);
  job.drafter->set_training_dtype(model::parse_dtype(job.settings.compute_dtype));

  const int64_t samples = job.store.size(data::Split::train);
  read_feature_file(job);
  for (int64_t i = 0; i < samples; ++i)
    job.longest = std::max(job.longest, static_cast<int64_t>(job.sample(i).ids.size()));
  if (job.longest > config.context) {
    throw data::InputError("A sample of " + settings.data + " has " + std::to_string(job.longest) +
                           " tokens, but " + settings.target + " reads " + std::to_string(config.context) +
                           ": give --max-length " + std::to_string(config.context) + ".");
  }
  const DataOrder order(std::ssize(job.order), job.settings.batch, job.settings.seed);
  job.total_steps = job.settings.steps > 0
                        ? job.settings.steps
                        : std::max<int64_t>(1, std::llround(job.settings.epochs *
                                                            static_cast<double>(order.steps_per_epoch())));
  return job;
}

}  // namespace clover::train
