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

/// What a command works with: tokenizer and chat template, the target, and the drafter.
struct LoadedModel {
  std::unique_ptr<PromptEncoder> prompts;
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;  // null without heads
};

/// Sets the number of threads, opens the device and loads what the options name.  Small files are checked
/// before the weights are read.  Prints which settings of the model's generation_config.json are in force.
/// InputError in one sentence.
LoadedModel load_model(const ModelOptions& options);

/// Loads the target alone, with the context that the options ask for.  InputError in one sentence.
std::unique_ptr<model::Target> load_target(const ModelOptions& options, at::Device device);

/// Loads the heads of `folder` for `target`, ready for decoding.  InputError as for check_tokenizer.
std::shared_ptr<model::Drafter> load_drafter(const std::string& folder, const model::Target& target,
                                             const data::Tokenizer& tokenizer);

/// InputError when the heads in `folder` were trained with another tokenizer.
void check_tokenizer(const std::string& folder, const data::Tokenizer& tokenizer);

/// The ids of the tokens that end an answer: those of --end-tokens (`named`), or the defaults of the model in
/// `folder`.  For the defaults, prints what the user should know about them (end_tokens.h).
std::vector<int64_t> chosen_end_ids(const std::vector<std::string>& named, const std::string& folder,
                                    const LoadedModel& model);

}  // namespace clover::infer
