#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/controls/control_fields.h"
#include "infer/requests/batch_input.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::infer {

/// Options that every command with a model shares.
struct ModelOptions {
  std::string target;
  std::string heads;  // empty: none
  std::string dtype;  // empty: as the target is stored
  std::string device = "cpu";
  std::string chat_template;  // empty: the folder's own
  int threads = 0;            // 0: every core this process may use
  int64_t max_context = 0;    // 0: as the target's config.json says
};

enum class HeadsOption { none, one };
void add_model_options(CLI::App& app, ModelOptions& options, HeadsOption heads);
/// For commands that decode.
void add_context_option(CLI::App& app, ModelOptions& options);

/// Turns the text of requests into token ids.
class PromptEncoder {
 public:
  /// Reads tokenizer and chat template.  A folder whose template is missing or cannot be read is an error
  /// only once a conversation is to be rendered, or when `template_name` asks for one by name.
  PromptEncoder(const std::string& folder, const std::string& template_name);

  /// Chat template (or the text as given) and tokens, of one of several prompts.  InputError when a
  /// conversation cannot be rendered.
  std::string text_of(const BatchLine& line, size_t choice = 0) const;
  std::vector<int64_t> encode(const BatchLine& line, size_t choice = 0) const;

  /// What a request for `asked` does to logits, where it does not say otherwise by `own`, which is the
  /// model's.
  void use_controls(ControlFields own) { own_controls_ = std::move(own); }
  const ControlFields& own_controls() const { return own_controls_; }
  std::shared_ptr<const LogitControls> controls_for(const ControlFields& asked) const;

  bool has_template() const { return template_.has_value(); }
  std::string template_name() const { return template_ ? template_->name() : ""; }
  std::string template_hash() const { return template_ ? template_->hash() : ""; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::optional<data::ChatTemplate> template_;
  std::string no_template_;  // why there is none
  ControlFields own_controls_;
};

/// Everything a command works with, read strictly before work begins.
struct LoadedModel {
  std::unique_ptr<PromptEncoder> prompts;
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;  // null without heads
};

/// The target, with the context that the options ask for.  InputError in one sentence.
std::unique_ptr<model::Target> load_target(const ModelOptions& options, at::Device device);

/// Sets the number of threads and reads what the options name.  InputError in one sentence.
LoadedModel load_model(const ModelOptions& options);

/// InputError when the heads in `folder` were trained with another tokenizer.
void check_tokenizer(const std::string& folder, const data::Tokenizer& tokenizer);

/// Heads for `target`, ready for decoding; InputError as check_tokenizer.
std::shared_ptr<model::Drafter> load_drafter(const std::string& folder, const model::Target& target,
                                             const data::Tokenizer& tokenizer);

/// Sets the number of threads of the process and opens the device.  InputError when it cannot be had.
at::Device prepare_device(const ModelOptions& options);

/// The same for work that is only built for the CPU: InputError for any other device.
void prepare_cpu(const ModelOptions& options);

/// The dtype the options ask for.
c10::ScalarType chosen_dtype(const ModelOptions& options);

/// `end_ids` of a loaded model, its notes said where nobody chose.
std::vector<int64_t> chosen_end_ids(const std::vector<std::string>& named, const std::string& folder,
                                    const LoadedModel& model);

}  // namespace clover::infer
