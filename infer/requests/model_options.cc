#include "infer/requests/model_options.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "data/chat/chat_template.h"
#include "data/files/error.h"
#include "infer/program/machine.h"
#include "infer/program/rank.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"
#include "model/target/target.h"

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
      ->check(CLI::Range(int64_t{0}, model::ConfigKeys::max_integer))
      ->group("Model");
}

namespace {

/// The N of cuda:N; for plain cuda the local rank that a launcher (torchrun, Slurm) gave this process.
int64_t gpu_number(const std::string& device) {
  std::string digits = device == "cuda" ? "0" : device.substr(device.find(':') + 1);
  if (device == "cuda") {  // LOCAL_RANK overrides SLURM_LOCALID
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

at::Device open_device(const ModelOptions& options) {
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, usable_cores() / static_cast<int>(local_ranks()));
  kernels::set_threads(threads);
  at::set_num_threads(threads);
  if (options.device == "cpu") return at::kCPU;
  if (options.device != "cuda" && options.device.rfind("cuda:", 0) != 0)
    throw data::InputError("--device: expected cpu, cuda or cuda:N, found \"" + options.device + "\"");
  const int64_t number = gpu_number(options.device);
  try {
    // A launcher may make only one GPU visible to each process, so a local rank wraps around.
    const bool by_local_rank = options.device == "cuda";
    return kernels::open_gpu(by_local_rank ? number % std::max<int64_t>(1, kernels::gpu_count()) : number);
  } catch (const c10::Error& error) {
    throw data::InputError("--device " + options.device + ": " + error.what_without_backtrace());
  }
}

void require_cpu(const ModelOptions& options) {
  if (!open_device(options).is_cpu())
    throw data::InputError("--device " + options.device +
                           ": this command works on the CPU alone; leave --device out");
}

c10::ScalarType chosen_dtype(const ModelOptions& options) {
  if (!options.dtype.empty()) return model::parse_dtype(options.dtype);
  return model::TargetConfig::read(options.target).stored_dtype;
}

}  // namespace clover::infer
