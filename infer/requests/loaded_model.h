#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/requests/model_options.h"
#include "infer/requests/prompt_encoder.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::infer {

/// What most commands load: the tokenizer and the chat template, the target, and the drafter.
struct LoadedModel {
  std::unique_ptr<PromptEncoder> prompt_encoder;
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;  // null without heads
};

/// Sets the number of threads, opens the device and loads what the options name.  Small files are checked
/// before the weights are read.  Prints GenerationSettings::notice on rank 0.  InputError when anything
/// cannot be loaded.
LoadedModel load_model(const ModelOptions& options);

/// Loads the target alone, with the context that the options ask for.  InputError when it cannot be loaded.
std::unique_ptr<model::Target> load_target(const ModelOptions& options, at::Device device);

/// A target of the shape that a config.json describes, with random weights.  `dtype`: empty for that of
/// config.json.  InputError when the weights do not fit into the device's free memory.
std::unique_ptr<model::Target> random_target(const std::string& config_file, const std::string& dtype,
                                             at::Device device);

/// Loads the heads of `folder` for `target`, frozen in its dtype.  InputError when they cannot be loaded or
/// check_tokenizer fails.
std::shared_ptr<model::Drafter> load_drafter(const std::string& folder, const model::Target& target,
                                             const data::Tokenizer& tokenizer);

/// InputError when the heads in `folder` were trained with another tokenizer.
void check_tokenizer(const std::string& folder, const data::Tokenizer& tokenizer);

/// The ids of the tokens that end an answer.  `named`: the values of --end-tokens; empty: the defaults of the
/// model in `folder`, about which warnings are then printed (infer/engine/end_tokens.h).
std::vector<int64_t> chosen_end_ids(const std::vector<std::string>& named, const std::string& folder,
                                    const LoadedModel& model);

}  // namespace clover::infer
