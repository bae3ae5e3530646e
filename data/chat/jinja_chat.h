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

/// Conversations through a folder's own template, as Hugging Face's apply_chat_template renders them, and on
/// 26 July 2024 where a template asks for the date, so that a job can be repeated.
class JinjaChat {
 public:
  /// `tokens`: bos_token, eos_token and so on, as texts.  `source`: what tells it from others.  InputError as
  /// JinjaTemplate's.
  JinjaChat(const std::string& text, JinjaTemplate::json tokens, std::string source);

  /// What an assistant wrote is what the template marks as {% generation %}; where it marks nothing, what an
  /// answer adds to the prompt before it, less the whitespace behind its end token.  An answer that the
  /// template renders in another way once more messages follow (without its thoughts, say) is nobody's.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt,
                      const TemplateArguments& arguments = nullptr) const;

  std::string text(const std::vector<Message>& messages, bool generation_prompt,
                   const TemplateArguments& arguments = nullptr) const;

  /// As ChatTemplate's.
  RenderedAnswer answer(const std::vector<Message>& messages, std::string_view prompt,
                        const TemplateArguments& arguments = nullptr) const;

  /// The field beside role and content that a model would have to read (a thought, a call of a tool); none:
  /// there is none.
  static std::optional<std::string> says_more(const Message& message);
  /// Whether the template reads a field of the message beside role and content, or ought to.
  bool looks_at(const Message& message) const;

  /// All that decides what is rendered.
  const std::string& source() const { return source_; }

 private:
  using json = JinjaTemplate::json;

  JinjaTemplate::Rendered rendered(const std::vector<Message>& messages, size_t count, bool generation_prompt,
                                   const TemplateArguments& arguments) const;
  /// `text`, which the first `count` messages make, the last an answer, less what closes a conversation.
  std::string up_to_answer(std::string text, const std::vector<Message>& messages, size_t count,
                           const TemplateArguments& arguments) const;
  /// The text of an answer that nothing was said before, had it begun otherwise: what both texts begin with
  /// is the template's, a default system message, say.
  std::string with_other_words(const Message& answer, const TemplateArguments& arguments) const;
  /// A message as the template sees it.
  json as_seen(const Message& message, size_t index) const;
  void add_arguments(json& variables, const TemplateArguments& arguments) const;
  /// InputError where a message of a role that not every template knows (tool, developer) is not shown.
  void check_shown(const std::vector<Message>& messages, const std::string& text, bool generation_prompt,
                   const TemplateArguments& arguments) const;

  JinjaTemplate template_;
  std::string source_;
  json variables_;
  std::set<std::string, std::less<>> variables_read_;  // names that the template has
  std::set<std::string, std::less<>> fields_read_;     // and those behind a dot or as a text
};

}  // namespace clover::data
