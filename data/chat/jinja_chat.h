#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/jinja/jinja_template.h"

namespace clover::data {

/// The Jinja chat template of a model's folder, rendered as Hugging Face's apply_chat_template does;
/// jinja/jinja_template.h is the engine.  A template that asks for today's date gets 26 July 2024, so that a
/// job can be repeated.
class JinjaChat {
 public:
  /// `text`: the Jinja source.  `tokens`: role ("bos_token") to text.  `source`: returned by `source()`.
  /// InputError for a template that JinjaTemplate refuses.
  JinjaChat(const std::string& text, JinjaTemplate::json tokens, std::string source);

  /// The assistant's spans are the {% generation %} blocks.  If the template has none, the span of an answer
  /// is the text that follows its prompt, without whitespace after the end token.  An answer that is rendered
  /// differently when more messages follow (for example without its reasoning) has no span.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt,
                      const TemplateArguments& arguments = nullptr) const;

  std::string text(const std::vector<Message>& messages, bool generation_prompt,
                   const TemplateArguments& arguments = nullptr) const;

  /// As ChatTemplate's.
  RenderedAnswer answer(const std::vector<Message>& messages, std::string_view prompt,
                        const TemplateArguments& arguments = nullptr) const;

  /// The name of a field of the message that holds reasoning or a tool call, if it has one.  The model would
  /// have to read it.
  static std::optional<std::string> reasoning_or_call_field(const Message& message);
  /// Whether the message has a field beside role and content that the template reads or has to read.
  bool reads_fields_of(const Message& message) const;

  /// Everything that decides the rendered text, template and special tokens; ChatTemplate::hash covers it.
  const std::string& source() const { return source_; }

 private:
  using json = JinjaTemplate::json;

  /// Renders the first `count` messages.
  JinjaTemplate::Rendered render_first(const std::vector<Message>& messages, size_t count,
                                       bool generation_prompt, const TemplateArguments& arguments) const;
  /// Removes from `text` a final EOS that the template writes only at the end of a conversation.  `text`:
  /// that of the first `count` messages, of which the last is an answer.
  std::string strip_closing_eos(std::string text, const std::vector<Message>& messages, size_t count,
                                const TemplateArguments& arguments) const;
  /// The text of a conversation that has only this answer, with another content.  Compared with the text of
  /// the real content, its common prefix is what the template writes, for example a default system message.
  std::string render_other_content(const Message& answer, const TemplateArguments& arguments) const;
  /// A message as a variable of the template.
  json template_message(const Message& message, size_t index) const;
  void add_template_arguments(json& variables, const TemplateArguments& arguments) const;
  /// InputError when the template leaves out a message of a less common role (tool, developer).
  void check_every_role_shown(const std::vector<Message>& messages, const std::string& text,
                              bool generation_prompt, const TemplateArguments& arguments) const;

  JinjaTemplate template_;
  std::string source_;
  json variables_;                                     // the special tokens, by role
  std::set<std::string, std::less<>> variables_read_;  // names in the template that follow no dot
  std::set<std::string, std::less<>> fields_read_;     // names after a dot, and string literals
};

}  // namespace clover::data
