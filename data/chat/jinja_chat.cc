#include "data/chat/jinja_chat.h"

#include <algorithm>
#include <string_view>

#include "data/chat/jinja/syntax/lexer.h"
#include "data/chat/jinja/values/texts.h"
#include "data/chat/jinja/values/values.h"
#include "data/files/error.h"
#include "data/text/utf8.h"

namespace clover::data {
namespace {

/// Names of the field that holds reasoning, in templates and data sets.
constexpr std::string_view reasoning_fields[] = {"reasoning_content", "reasoning", "thinking"};
constexpr std::string_view tool_call_fields[] = {"tool_calls", "tool_call_id", "function_call"};

bool is_reasoning_field(std::string_view field) {
  return std::find(std::begin(reasoning_fields), std::end(reasoning_fields), field) !=
         std::end(reasoning_fields);
}

bool is_plain_role(const std::string& role) {
  return role == "system" || role == "user" || role == "assistant";
}

/// Length in bytes of the common prefix of both texts, which ends between two characters.
size_t common_prefix_length(std::string_view prompt, std::string_view with_answer) {
  const auto difference = std::mismatch(prompt.begin(), prompt.end(), with_answer.begin(), with_answer.end());
  size_t length = static_cast<size_t>(difference.first - prompt.begin());
  while (length > 0 && length < with_answer.size() && is_continuation_byte(with_answer[length])) --length;
  return length;
}

/// Length in bytes of the assistant's part of `added`, the text that an answer adds to its prompt.  If
/// `added` ends with the answer's `content`, that is all of it.  Otherwise the template has written an end
/// token after the content, and whitespace after that token is not the assistant's.
size_t answer_length(std::string_view added, std::string_view content) {
  const std::string_view without_space = jinja::stripped(added, false, true);
  const std::string_view trimmed = jinja::stripped(content, true, true);
  return !trimmed.empty() && without_space.ends_with(trimmed) ? added.size() : without_space.size();
}

void check_messages(const std::vector<Message>& messages) {
  if (messages.empty()) throw InputError("messages: expected at least one message, found none");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (is_plain_role(role) || role == "tool" || role == "developer" || role == "function") continue;
    throw InputError("messages[" + std::to_string(i) +
                     "].role: expected system, user, assistant, tool or developer, found \"" +
                     role.substr(0, 100) + "\"");
  }
}

}  // namespace

JinjaChat::JinjaChat(const std::string& text, json tokens, std::string source)
    : template_(text), source_(std::move(source)), variables_(std::move(tokens)) {
  using Kind = jinja::Token::Kind;
  bool after_dot = false;
  for (const jinja::Token& token : jinja::tokenize(text)) {
    if (token.kind == Kind::name && !after_dot) variables_read_.insert(token.text);
    if (token.kind == Kind::string || (token.kind == Kind::name && after_dot))
      fields_read_.insert(token.text);
    after_dot = token.kind == Kind::symbol && token.text == ".";
  }
}

std::optional<std::string> JinjaChat::reasoning_or_call_field(const Message& message) {
  if (!message.fields) return std::nullopt;
  for (const auto& [name, value] : message.fields->items()) {
    if (is_reasoning_field(name) || std::find(std::begin(tool_call_fields), std::end(tool_call_fields),
                                              name) != std::end(tool_call_fields))
      return name;
  }
  return std::nullopt;
}

bool JinjaChat::reads_fields_of(const Message& message) const {
  if (!message.fields) return false;
  if (reasoning_or_call_field(message)) return true;
  const auto& fields = message.fields->items();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const auto& field) { return fields_read_.contains(field.key()); });
}

JinjaChat::json JinjaChat::template_message(const Message& message, size_t index) const {
  json variable = {{"role", message.role}, {"content", message.content}};
  if (!message.fields) return variable;
  for (const auto& [name, value] : message.fields->items()) {
    std::string template_field = name;  // the name by which the template reads this field
    if (is_reasoning_field(name) && !fields_read_.contains(name)) {
      for (const std::string_view other : reasoning_fields)
        if (fields_read_.contains(other)) template_field = other;
    }
    const bool must_be_read = is_reasoning_field(name) || name == "tool_calls" || name == "function_call";
    if (must_be_read && !fields_read_.contains(template_field)) {
      throw InputError("messages[" + std::to_string(index) + "]." + name +
                       ": the chat template does not use it; leave it out, or write it into the content as "
                       "the model would");
    }
    variable[template_field] = value;
  }
  return variable;
}

void JinjaChat::add_template_arguments(json& variables, const TemplateArguments& arguments) const {
  variables["tools"] = variables["documents"] = nullptr;
  if (!arguments) return;
  for (const auto& [name, value] : arguments->items()) {
    if (!variables_read_.contains(name)) {
      throw InputError(name +
                       ": the chat template does not use it, so the model would not read it; leave it "
                       "out, or say it in a message");
    }
    variables[name] = value;
  }
}

JinjaTemplate::Rendered JinjaChat::render_first(const std::vector<Message>& messages, size_t count,
                                                bool generation_prompt,
                                                const TemplateArguments& arguments) const {
  json variables = variables_, list = json::array();
  for (size_t i = 0; i < count; ++i) list.push_back(template_message(messages[i], i));
  add_template_arguments(variables, arguments);
  variables["messages"] = std::move(list);
  variables["add_generation_prompt"] = generation_prompt;
  try {
    return template_.render(variables);
  } catch (const jinja::Unsupported&) {
    throw;
  } catch (const InputError& error) {
    throw InputError("messages: the chat template refuses them: " + std::string(error.what()));
  }
}

void JinjaChat::check_every_role_shown(const std::vector<Message>& messages, const std::string& text,
                                       bool generation_prompt, const TemplateArguments& arguments) const {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (is_plain_role(message.role) || message.content.empty() ||
        text.find(message.content) != std::string::npos)
      continue;
    // The text may show the content in another form, as JSON; then it changes with the content.
    std::vector<Message> changed_messages = messages;
    changed_messages[i].content += "x";
    if (render_first(changed_messages, changed_messages.size(), generation_prompt, arguments).text == text) {
      throw InputError("messages[" + std::to_string(i) +
                       "].role: the chat template does not show messages of \"" + message.role + "\"");
    }
  }
}

std::string JinjaChat::text(const std::vector<Message>& messages, bool generation_prompt,
                            const TemplateArguments& arguments) const {
  check_messages(messages);
  std::string text = render_first(messages, messages.size(), generation_prompt, arguments).text;
  check_every_role_shown(messages, text, generation_prompt, arguments);
  return text;
}

std::string JinjaChat::strip_closing_eos(std::string text, const std::vector<Message>& messages, size_t count,
                                         const TemplateArguments& arguments) const {
  const std::string eos = variables_.value("eos_token", std::string());
  if (eos.empty() || !text.ends_with(eos)) return text;
  // Phi-3's template, for example, ends a finished conversation with another token: "<|end|>\n<|endoftext|>".
  const std::string without_eos = text.substr(0, text.size() - eos.size());
  try {
    const std::string with_generation_prompt = render_first(messages, count, true, arguments).text;
    return with_generation_prompt.starts_with(without_eos) && !with_generation_prompt.starts_with(text)
               ? without_eos
               : text;
  } catch (const jinja::Unsupported&) {
    throw;
  } catch (const InputError&) {  // the template refuses an answer after an answer
    return text;
  }
}

RenderedAnswer JinjaChat::answer(const std::vector<Message>& messages, std::string_view prompt,
                                 const TemplateArguments& arguments) const {
  JinjaTemplate::Rendered rendered = render_first(messages, messages.size(), false, arguments);
  if (!rendered.generations.empty() &&
      rendered.generations.back().second > common_prefix_length(prompt, rendered.text)) {
    const auto [begin, end] = rendered.generations.back();
    const bool continues_prompt =
        std::string_view(rendered.text).starts_with(prompt) && begin >= prompt.size();
    return {std::move(rendered.text), continues_prompt ? begin : std::string::npos, end, true};
  }
  rendered.text = strip_closing_eos(std::move(rendered.text), messages, messages.size(), arguments);
  const bool continues_prompt = std::string_view(rendered.text).starts_with(prompt);
  const size_t begin = continues_prompt ? prompt.size() : 0;
  const size_t end =
      begin + answer_length(std::string_view(rendered.text).substr(begin), messages.back().content);
  return {std::move(rendered.text), continues_prompt ? begin : std::string::npos, end, false};
}

std::string JinjaChat::render_other_content(const Message& answer, const TemplateArguments& arguments) const {
  Message other = answer;
  other.content = jinja::stripped(answer.content, true, false).starts_with('a') ? "b" : "a";
  return render_first({other}, 1, false, arguments).text;
}

RenderedChat JinjaChat::render(const std::vector<Message>& messages, bool generation_prompt,
                               const TemplateArguments& arguments) const {
  check_messages(messages);
  JinjaTemplate::Rendered rendered = render_first(messages, messages.size(), generation_prompt, arguments);
  RenderedChat chat{std::move(rendered.text), std::move(rendered.generations)};
  if (!chat.assistant_spans.empty()) return chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string text_with_answer =
        strip_closing_eos(render_first(messages, i + 1, false, arguments).text, messages, i + 1, arguments);
    const std::string prompt = i > 0 ? render_first(messages, i, true, arguments).text
                                     : render_other_content(messages[0], arguments);
    const size_t content_at = text_with_answer.rfind(jinja::stripped(messages[i].content, true, true));
    const size_t begin = std::min(common_prefix_length(prompt, text_with_answer), content_at);
    const size_t end =
        begin + answer_length(std::string_view(text_with_answer).substr(begin), messages[i].content);
    if (std::string_view(chat.text).starts_with(std::string_view(text_with_answer).substr(0, end)))
      chat.assistant_spans.emplace_back(begin, end);
  }
  return chat;
}

}  // namespace clover::data
