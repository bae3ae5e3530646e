#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <CLI/App.hpp>

#include <cstdint>
#include <string>

namespace clover::infer {

/// The command-line options of every command that loads a model.
struct ModelOptions {
  std::string target;          // folder of the target model
  std::string heads;           // folder of drafter heads; empty: none
  std::string dtype;           // empty: the dtype in which the target is stored
  std::string device = "cpu";  // cpu, cuda or cuda:N
  std::string chat_template;   // name of a template; empty: the one in the target's folder
  int threads = 0;             // 0: every core this process may use
  int64_t max_context = 0;     // tokens; 0: what the target's config.json says
};

/// Whether add_model_options declares --heads: not for commands without heads or with a list of them.
enum class HeadsOption { none, one };

/// Declares --target, --heads, --dtype, --device, --template and --threads.
void add_model_options(CLI::App& app, ModelOptions& options, HeadsOption heads);
/// Declares --max-context, for commands that decode.
void add_context_option(CLI::App& app, ModelOptions& options);

/// Sets the number of threads of this process and opens the device.  InputError when the device cannot be
/// opened.
at::Device open_device(const ModelOptions& options);
/// Sets the number of threads, for work that runs on the CPU only.  InputError when --device names another
/// device.
void require_cpu(const ModelOptions& options);

/// The dtype to compute in: --dtype, or the dtype in which the target is stored.
c10::ScalarType chosen_dtype(const ModelOptions& options);

}  // namespace clover::infer
