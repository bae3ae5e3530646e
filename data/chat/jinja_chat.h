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

/// A folder's own Jinja chat template, rendered as Hugging Face's apply_chat_template does
/// (jinja/jinja_template.h is the engine).  A template that asks for today's date gets 26 July 2024, so that
/// a job can be repeated.
class JinjaChat {
 public:
  /// `text`: the Jinja source.  `tokens`: texts of bos_token, eos_token, ..  `source`: what the hash covers.
  /// InputError as JinjaTemplate's.
  JinjaChat(const std::string& text, JinjaTemplate::json tokens, std::string source);

  /// The assistant's spans are the {% generation %} blocks.  Where the template has none, an answer's span is
  /// what it adds to the prompt before it, without whitespace after its end token.  An answer that is
  /// rendered differently once more messages follow (for example without its reasoning) has no span.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt,
                      const TemplateArguments& arguments = nullptr) const;

  std::string text(const std::vector<Message>& messages, bool generation_prompt,
                   const TemplateArguments& arguments = nullptr) const;

  /// As ChatTemplate's.
  RenderedAnswer answer(const std::vector<Message>& messages, std::string_view prompt,
                        const TemplateArguments& arguments = nullptr) const;

  /// The name of a field that a model would have to read beside the content (reasoning, a tool call), if the
  /// message has one.
  static std::optional<std::string> unrendered_field(const Message& message);
  /// Whether the template reads a field of the message beside role and content, or has to.
  bool reads_fields_of(const Message& message) const;

  /// Everything that decides the rendered text: template and special tokens.
  const std::string& source() const { return source_; }

 private:
  using json = JinjaTemplate::json;

  JinjaTemplate::Rendered rendered(const std::vector<Message>& messages, size_t count, bool generation_prompt,
                                   const TemplateArguments& arguments) const;
  /// `text` is that of the first `count` messages, the last an answer.  Removes a final EOS that the template
  /// writes only at the end of a conversation.
  std::string strip_closing_eos(std::string text, const std::vector<Message>& messages, size_t count,
                                const TemplateArguments& arguments) const;
  /// The text of a conversation of this one answer, with another content.  What both texts begin with is
  /// written by the template, for example a default system message.
  std::string render_other_content(const Message& answer, const TemplateArguments& arguments) const;
  /// A message as a variable of the template.
  json template_message(const Message& message, size_t index) const;
  void add_template_arguments(json& variables, const TemplateArguments& arguments) const;
  /// InputError when the template leaves out a message of a less common role (tool, developer).
  void check_every_role_shown(const std::vector<Message>& messages, const std::string& text,
                              bool generation_prompt, const TemplateArguments& arguments) const;

  JinjaTemplate template_;
  std::string source_;
  json variables_;
  std::set<std::string, std::less<>> variables_read_;  // names in the template
  std::set<std::string, std::less<>> fields_read_;     // names after a dot, and string literals
};

}  // namespace clover::data
