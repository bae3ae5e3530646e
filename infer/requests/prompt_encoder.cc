#include "infer/requests/prompt_encoder.h"

#include "data/files/error.h"

namespace clover::infer {

PromptEncoder::PromptEncoder(const std::string& folder, const std::string& template_name)
    : tokenizer_(data::Tokenizer::load(folder)) {
  try {
    template_ = data::ChatTemplate::load(folder, template_name);
  } catch (const data::InputError& error) {
    if (!template_name.empty()) throw;
    template_error_ = error.what();
  }
}

std::string PromptEncoder::text_of(const BatchLine& line, size_t prompt_index) const {
  if (!line.prompts.empty()) {
    const ListedPrompt& prompt = line.prompts[prompt_index];
    return prompt.ids.empty() ? prompt.text : tokenizer_->decode(prompt.ids, /*skip_special=*/false);
  }
  if (!line.conversation()) return line.prompt;
  if (!template_) throw data::InputError(template_error_);
  return template_->text(line.messages, true, line.arguments);
}

std::vector<int64_t> PromptEncoder::encode(const BatchLine& line, size_t prompt_index) const {
  if (!line.prompts.empty() && !line.prompts[prompt_index].ids.empty()) return line.prompts[prompt_index].ids;
  const std::string text = text_of(line, prompt_index);
  data::EncodeOptions options;
  // A {"text"} line asks for the tokens of exactly this text, so no BOS is added.
  options.add_bos =
      line.conversation() ? !template_->text_has_bos() : line.shape != LineShape::text && !text.empty();
  return tokenizer_->encode(text, options);
}

std::shared_ptr<const LogitControls> PromptEncoder::controls_for(const ControlFields& fields) const {
  ControlFields completed = fields;
  completed.fill_from(default_controls_);
  return resolve_controls(completed, *tokenizer_);
}

}  // namespace clover::infer
