#pragma once

#include <string>
#include <vector>

#include "data/chat_template.h"
#include "data/jinja/jinja_template.h"

namespace clover::data {

/// Conversations through a folder's own template, as Hugging Face's apply_chat_template renders them, without
/// tools, and on 26 July 2024 where a template asks for the date, so that a job can be repeated.
class JinjaChat {
 public:
  /// `tokens`: bos_token, eos_token and so on, as texts.  InputError as JinjaTemplate's.
  JinjaChat(const std::string& text, JinjaTemplate::json tokens)
      : template_(text), source_(text), variables_(std::move(tokens)) {}

  /// What an assistant wrote is what the template marks as {% generation %}; where it marks nothing, what an
  /// answer adds to the prompt before it, less the whitespace behind its end token.  An answer that the
  /// template renders in another way once more messages follow (without its thoughts, say) is nobody's.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt) const;

  std::string text(const std::vector<Message>& messages, bool generation_prompt) const {
    return rendered(messages, messages.size(), generation_prompt).text;
  }

  /// All that decides what is rendered.
  std::string source() const { return source_ + variables_.dump(); }

 private:
  JinjaTemplate::Rendered rendered(const std::vector<Message>& messages, size_t count,
                                   bool generation_prompt) const;

  /// What the first `count` messages say, the last an answer.
  std::string up_to_answer(const std::vector<Message>& messages, size_t count) const;

  JinjaTemplate template_;
  std::string source_;
  JinjaTemplate::json variables_;
};

}  // namespace clover::data
