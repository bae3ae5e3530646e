#include "data/chat/generated_answer.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "data/chat/jinja/values/texts.h"
#include "data/files/error.h"
#include "data/text/utf8.h"

namespace clover::data {
namespace {

constexpr auto npos = std::string_view::npos;

std::string_view stripped(std::string_view text) {
  return jinja::stripped(text, true, true);
}

size_t common_suffix_length(std::string_view a, std::string_view b) {
  const auto difference = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<size_t>(difference.first - a.rbegin());
}

/// A reasoning tag that a prompt ends with, "<think>", and the tag that closes it.
struct ReasoningTag {
  std::string open, close;
};
std::optional<ReasoningTag> open_reasoning_tag(std::string_view prompt) {
  const std::string_view text = jinja::stripped(prompt, false, true);
  for (const auto& [left, right] : {std::pair{'<', '>'}, {'[', ']'}}) {
    const size_t at = text.rfind(left);
    if (!text.ends_with(right) || at == npos || text.size() - at < 4) continue;
    const std::string_view name = text.substr(at + 1, text.size() - at - 2);
    const bool is_name = std::all_of(name.begin(), name.end(),
                                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (is_name) return ReasoningTag{std::string(text.substr(at)), left + ("/" + std::string(name)) + right};
  }
  return std::nullopt;
}

/// The generated text after a prompt that ends with an open reasoning tag: the content without that tag.
/// Nothing when the prompt does not end with such a tag, or the content does not close it.
std::optional<std::string> text_after_open_reasoning(std::string_view prompt, std::string_view content) {
  const auto tag = open_reasoning_tag(prompt);
  if (!tag || content.find(tag->close) == npos) return std::nullopt;
  std::string_view generated = content;
  const std::string_view begin = jinja::stripped(generated, true, false);
  if (begin.starts_with(tag->open)) {
    generated = begin.substr(tag->open.size());
    const size_t space = prompt.size() - (prompt.rfind(tag->open) + tag->open.size());
    for (size_t i = prompt.size() - space; i < prompt.size() && generated.starts_with(prompt[i]); ++i)
      generated.remove_prefix(1);
  } else if (content.substr(0, content.find(tag->close)).find(tag->open) != npos) {
    return std::nullopt;
  }
  return std::string(generated);
}

/// Whether the content has reasoning that `written`, the template's text of the answer, lacks.
bool drops_reasoning(std::string_view content, std::string_view written) {
  for (const std::string_view close : {"</think>", "</thinking>", "[/THINK]"})
    if (content.find(close) != npos && written.find(close) == npos) return true;
  return false;
}

/// Where the answer begins in a text that renders earlier messages differently than the prompt does: after
/// the part of the prompt from the last question to its end.  npos when the text does not have that part
/// before the answer's content.
size_t begin_after_last_question(std::string_view text, std::string_view prompt,
                                 const std::vector<Message>& messages) {
  const size_t content_at = text.rfind(stripped(messages.back().content));
  if (content_at == npos || messages.size() < 2) return npos;
  const std::string_view question = stripped(messages[messages.size() - 2].content);
  const size_t question_at = prompt.rfind(question);
  if (question.empty() || question_at == npos) return npos;
  constexpr size_t max_header_bytes = 64;  // bytes that a template may write between prompt and content
  for (size_t begin = content_at + 1; begin-- > content_at - std::min(content_at, max_header_bytes);) {
    if (common_suffix_length(prompt, text.substr(0, begin)) >= prompt.size() - question_at) return begin;
  }
  return npos;
}

/// Where the answer begins if prompt and text differ only in whitespace between prompt and answer;
/// otherwise npos.
size_t begin_ignoring_whitespace(std::string_view text, std::string_view prompt, std::string_view content) {
  const std::string_view trimmed_prompt = jinja::stripped(prompt, false, true);
  const std::string_view trimmed = stripped(content);
  if (!text.starts_with(trimmed_prompt) || trimmed.empty()) return npos;
  const std::string_view after_prompt = jinja::stripped(text.substr(trimmed_prompt.size()), true, false);
  // Only the first line is compared: a template may change the content after it.
  return after_prompt.starts_with(trimmed.substr(0, trimmed.find('\n'))) ? text.size() - after_prompt.size()
                                                                         : npos;
}

/// Where the content begins in a text in which the header of the answer differs from the generation prompt.
/// The model reads the prompt, so the header does not matter, unless the prompt opens or closes a reasoning
/// block; then npos.
size_t begin_of_content(std::string_view text, std::string_view prompt, std::string_view content) {
  const auto difference = std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end());
  const std::string_view differing_prompt =
      prompt.substr(static_cast<size_t>(difference.first - prompt.begin()));
  const auto tag = open_reasoning_tag(prompt);
  const bool changes_reasoning =
      differing_prompt.find("think>") != npos || (tag && differing_prompt.find(tag->open) != npos);
  return changes_reasoning || stripped(content).empty() ? npos : text.rfind(stripped(content));
}

[[noreturn]] void refuse(size_t index, std::string_view prompt, std::string_view text) {
  const auto difference = std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end());
  const size_t at = static_cast<size_t>(difference.first - prompt.begin());
  const auto quoted = [](std::string_view part) {
    return part.empty() ? std::string("nothing") : "\"" + repair_utf8(part.substr(0, 40)) + "\"";
  };
  throw InputError(
      "messages[" + std::to_string(index) +
      "]: the chat template does not write this answer behind its own generation prompt (expected " +
      quoted(prompt.substr(at)) + ", found " + quoted(text.substr(at)) +
      "), so the decoder could not have given it; write it as the model would");
}

}  // namespace

GeneratedAnswer generated_answer(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                                 std::string_view prompt, const TemplateArguments& arguments,
                                 const std::function<std::string()>& end_text) {
  const RenderedAnswer chat = chat_template.answer(messages, prompt, arguments);
  const std::string_view text = chat.text;
  const std::string& content = messages.back().content;
  const size_t last = messages.size() - 1;
  const auto answer_from = [&](size_t begin) {
    return GeneratedAnswer{"", std::string(text.substr(begin, chat.end - begin)),
                           std::string(text.substr(chat.end))};
  };
  if (chat.begin != npos) {
    if (chat.end <= chat.begin)
      throw InputError("messages[" + std::to_string(last) + "]: the chat template does not show this answer");
    if (!chat.by_generation_tag && drops_reasoning(content, text.substr(chat.begin)))
      return {"", content + end_text(), ""};
    GeneratedAnswer answer = answer_from(chat.begin);
    answer.before = text.substr(prompt.size(), chat.begin - prompt.size());
    return answer;
  }
  if (const auto generated = text_after_open_reasoning(prompt, content))
    return {"", *generated + end_text(), ""};
  size_t begin = begin_ignoring_whitespace(text, prompt, content);
  if (begin == npos) begin = begin_after_last_question(text, prompt, messages);
  if (begin == npos) begin = begin_of_content(text, prompt, content);
  if (begin == npos || begin >= chat.end || drops_reasoning(content, text.substr(begin)))
    refuse(last, prompt, text);
  return answer_from(begin);
}

}  // namespace clover::data
