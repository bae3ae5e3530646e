#include "infer/requests/loaded_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "data/files/error.h"
#include "infer/controls/generation_settings.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/machine.h"
#include "infer/program/rank.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::infer {

void add_model_options(CLI::App& app, ModelOptions& options, HeadsOption heads) {
  const std::string group = "Model";
  app.add_option("--target", options.target,
                 "Folder of the frozen model (config.json, safetensors, tokenizer)")
      ->required()
      ->type_name("DIR")
      ->group(group);
  if (heads == HeadsOption::one) {
    app.add_option("--heads", options.heads, "Folder of drafter heads trained for this target")
        ->type_name("DIR")
        ->group(group);
  }
  app.add_option("--dtype", options.dtype,
                 "bfloat16, float16 or float32 (default: config.json's, or that of its first stored tensor)")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--device", options.device,
                 "cpu, cuda (the launcher's local rank, else the first GPU) or cuda:N")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--template", options.chat_template,
                 "Chat template, one of " + data::ChatTemplate::joined_names() +
                     ", the last being the model folder's own (default: that one)")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--threads", options.threads, "Threads to compute with; 0: every core this process may use")
      ->type_name("N")
      ->check(CLI::Range(0, 4096))
      ->group(group);
}

void add_context_option(CLI::App& app, ModelOptions& options) {
  app.add_option(
         "--max-context", options.max_context,
         "Most tokens of a text, prompt and answer (default, 0: what config.json says, times the factor of "
         "stretched positions)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, model::ConfigKeys::largest))
      ->group("Model");
}

PromptEncoder::PromptEncoder(const std::string& folder, const std::string& template_name)
    : tokenizer_(data::Tokenizer::load(folder)) {
  try {
    template_ = data::ChatTemplate::load(folder, template_name);
  } catch (const data::InputError& error) {
    if (!template_name.empty()) throw;
    no_template_ = error.what();
  }
}

std::string PromptEncoder::text_of(const BatchLine& line, size_t choice) const {
  if (!line.prompts.empty()) {
    const ListedPrompt& prompt = line.prompts[choice];
    return prompt.ids.empty() ? prompt.text : tokenizer_->decode(prompt.ids, /*skip_special=*/false);
  }
  if (!line.conversation()) return line.prompt;
  if (!template_) throw data::InputError(no_template_);
  return template_->text(line.messages, true, line.arguments);
}

std::vector<int64_t> PromptEncoder::encode(const BatchLine& line, size_t choice) const {
  if (!line.prompts.empty() && !line.prompts[choice].ids.empty()) return line.prompts[choice].ids;
  const std::string text = text_of(line, choice);
  data::EncodeOptions options;
  // A {"text"} line asks for the tokens of exactly this text.
  options.add_bos =
      line.conversation() ? !template_->text_has_bos() : line.shape != LineShape::text && !text.empty();
  return tokenizer_->encode(text, options);
}

std::shared_ptr<const LogitControls> PromptEncoder::controls_for(const ControlFields& asked) const {
  ControlFields all = asked;
  all.fill(own_controls_);
  return resolve_controls(all, *tokenizer_);
}

namespace {

/// The N of cuda:N; of cuda alone the rank that a launcher (torchrun, Slurm) gave this process on its
/// machine.
int64_t gpu_number(const std::string& device) {
  std::string digits = device == "cuda" ? "0" : device.substr(device.find(':') + 1);
  if (device == "cuda") {
    for (const char* name : {"SLURM_LOCALID", "LOCAL_RANK"})
      if (const char* rank = std::getenv(name)) digits = rank;
  }
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0)
    throw data::InputError("--device " + device + ": expected a number of a GPU, found \"" + digits + "\"");
  return number;
}

}  // namespace

at::Device prepare_device(const ModelOptions& options) {
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, usable_cores() / static_cast<int>(local_ranks()));
  kernels::set_threads(threads);
  at::set_num_threads(threads);
  if (options.device == "cpu") return at::kCPU;
  if (options.device != "cuda" && options.device.rfind("cuda:", 0) != 0)
    throw data::InputError("--device: expected cpu, cuda or cuda:N, found \"" + options.device + "\"");
  const int64_t number = gpu_number(options.device);
  try {
    // A launcher may show each of its processes one GPU alone, whatever their ranks.
    const bool any = options.device == "cuda";
    return kernels::open_gpu(any ? number % std::max<int64_t>(1, kernels::gpu_count()) : number);
  } catch (const c10::Error& error) {
    throw data::InputError("--device " + options.device + ": " + error.what_without_backtrace());
  }
}

void prepare_cpu(const ModelOptions& options) {
  if (!prepare_device(options).is_cpu())
    throw data::InputError("--device " + options.device +
                           ": this command works on the CPU alone; leave --device out");
}

c10::ScalarType chosen_dtype(const ModelOptions& options) {
  if (!options.dtype.empty()) return model::parse_dtype(options.dtype);
  return model::TargetConfig::read(options.target).stored_dtype;
}

namespace {

/// Those of the model's folder, saying so.
void take_own_settings(const std::string& folder, LoadedModel& loaded) {
  GenerationSettings own = read_generation_settings(folder, loaded.target->config().vocab);
  if (!own.notice.empty() && Rank::of_launcher().number == 0)
    std::fprintf(stderr, "%s\n", own.notice.c_str());
  loaded.prompts->use_controls(std::move(own.controls));
}

}  // namespace

std::unique_ptr<model::Target> load_target(const ModelOptions& options, at::Device device) {
  auto target = model::Target::load(options.target, chosen_dtype(options), device);
  if (options.max_context > 0) target->set_context(options.max_context);
  return target;
}

LoadedModel load_model(const ModelOptions& options) {
  const at::Device device = prepare_device(options);
  LoadedModel loaded;
  // The cheap parts first, so that a wrong folder or name is refused before gigabytes are read.
  chosen_dtype(options);
  if (!options.heads.empty()) model::read_heads_info(options.heads);
  loaded.prompts = std::make_unique<PromptEncoder>(options.target, options.chat_template);
  loaded.target = load_target(options, device);
  take_own_settings(options.target, loaded);
  if (!options.heads.empty()) {
    loaded.drafter = load_drafter(options.heads, *loaded.target, loaded.prompts->tokenizer());
  }
  return loaded;
}

void check_tokenizer(const std::string& folder, const data::Tokenizer& tokenizer) {
  const nlohmann::json config = model::read_heads_info(folder).config;
  const auto about = config.find("tokenizer");
  const nlohmann::json trained_with = about == config.end() ? nlohmann::json()
                                      : about->is_object()  ? about->value("hash", nlohmann::json())
                                                            : *about;
  if (trained_with.is_string() && !trained_with.get_ref<const std::string&>().empty() &&
      trained_with != tokenizer.hash()) {
    throw data::InputError(folder + ": these heads were trained with the tokenizer " +
                           trained_with.get<std::string>() + ", but the target's is " + tokenizer.hash() +
                           "; use the target folder they were trained on");
  }
}

std::shared_ptr<model::Drafter> load_drafter(const std::string& folder, const model::Target& target,
                                             const data::Tokenizer& tokenizer) {
  check_tokenizer(folder, tokenizer);
  std::shared_ptr<model::Drafter> drafter = model::load_heads(folder, target, false);
  if (!drafter->frozen()) drafter->freeze(target.dtype());
  return drafter;
}

std::vector<int64_t> chosen_end_ids(const std::vector<std::string>& named, const std::string& folder,
                                    const LoadedModel& model) {
  const data::Tokenizer& tokenizer = model.prompts->tokenizer();
  if (named.empty()) say_end_tokens(folder, model.target->config(), tokenizer);
  return end_ids(named, model.target->config(), tokenizer);
}

}  // namespace clover::infer
