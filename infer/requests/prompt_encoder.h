#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/controls/control_fields.h"
#include "infer/requests/batch_input.h"

namespace clover::infer {

/// Turns requests into token ids: renders the chat template and tokenises.
class PromptEncoder {
 public:
  /// Reads the tokenizer and the chat template of a model's folder.  `template_name`: the name of a template;
  /// empty: the folder's own.  InputError when a named template cannot be loaded.  When the folder's own
  /// template cannot be loaded, only encoding a conversation is an InputError.
  PromptEncoder(const std::string& folder, const std::string& template_name);

  /// The text that the model reads: the rendered conversation, or the prompt as given.  `prompt_index`
  /// selects one of BatchLine::prompts.  InputError when a conversation cannot be rendered.
  std::string text_of(const BatchLine& line, size_t prompt_index = 0) const;
  /// The token ids of that text.
  std::vector<int64_t> encode(const BatchLine& line, size_t prompt_index = 0) const;

  /// The logit controls of requests that do not set their own: those of the model's generation_config.json.
  void set_default_controls(ControlFields controls) { default_controls_ = std::move(controls); }
  const ControlFields& default_controls() const { return default_controls_; }
  /// The controls of a request with `fields`, completed by the defaults; null when they have no effect.
  std::shared_ptr<const LogitControls> controls_for(const ControlFields& fields) const;

  bool has_template() const { return template_.has_value(); }
  std::string template_name() const { return template_ ? template_->name() : ""; }
  std::string template_hash() const { return template_ ? template_->hash() : ""; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::optional<data::ChatTemplate> template_;
  std::string template_error_;  // why the folder's own template could not be loaded
  ControlFields default_controls_;
};

}  // namespace clover::infer
