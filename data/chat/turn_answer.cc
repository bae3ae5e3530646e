#include "data/chat/turn_answer.h"

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

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != npos;
}

size_t common_end(std::string_view one, std::string_view other) {
  const auto differ = std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend());
  return static_cast<size_t>(differ.first - one.rbegin());
}

/// The mark of a thought that the prompt opens, "<think>", and the one that closes it.
struct ThoughtMark {
  std::string open, close;
};
std::optional<ThoughtMark> opened_by(std::string_view prompt) {
  const std::string_view text = jinja::stripped(prompt, false, true);
  for (const auto& [left, right] : {std::pair{'<', '>'}, {'[', ']'}}) {
    const size_t at = text.rfind(left);
    if (!text.ends_with(right) || at == npos || text.size() - at < 4) continue;
    const std::string_view name = text.substr(at + 1, text.size() - at - 2);
    const bool is_name = std::all_of(name.begin(), name.end(),
                                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (is_name) return ThoughtMark{std::string(text.substr(at)), left + ("/" + std::string(name)) + right};
  }
  return std::nullopt;
}

/// An answer behind a prompt that opens its thought, which templates leave out of what was said.
std::optional<std::string> behind_open_thought(std::string_view prompt, std::string_view content) {
  const auto mark = opened_by(prompt);
  if (!mark || !contains(content, mark->close)) return std::nullopt;
  std::string_view said = content;
  const std::string_view begin = jinja::stripped(said, true, false);
  if (begin.starts_with(mark->open)) {
    said = begin.substr(mark->open.size());
    const size_t space = prompt.size() - (prompt.rfind(mark->open) + mark->open.size());
    for (size_t i = prompt.size() - space; i < prompt.size() && said.starts_with(prompt[i]); ++i)
      said.remove_prefix(1);
  } else if (contains(content.substr(0, content.find(mark->close)), mark->open)) {
    return std::nullopt;
  }
  return std::string(said);
}

/// Whether the template leaves out what the model thought before it answered.
bool lacks_thought(std::string_view content, std::string_view written) {
  for (const std::string_view close : {"</think>", "</thinking>", "[/THINK]"})
    if (contains(content, close) && !contains(written, close)) return true;
  return false;
}

/// Where an answer begins in a text that writes what is before it otherwise than the prompt does: there ends,
/// as in the prompt, the last question.
size_t begin_behind_same_end(std::string_view text, std::string_view prompt,
                             const std::vector<Message>& messages) {
  const size_t content_at = text.rfind(stripped(messages.back().content));
  if (content_at == npos || messages.size() < 2) return npos;
  const std::string_view asked = stripped(messages[messages.size() - 2].content);
  const size_t asked_at = prompt.rfind(asked);
  if (asked.empty() || asked_at == npos) return npos;
  constexpr size_t longest_mark = 64;  // between a prompt and the answer's own text
  for (size_t begin = content_at + 1; begin-- > content_at - std::min(content_at, longest_mark);) {
    if (common_end(prompt, text.substr(0, begin)) >= prompt.size() - asked_at) return begin;
  }
  return npos;
}

/// The same where only the whitespace between them differs.
size_t begin_behind_other_space(std::string_view text, std::string_view prompt, std::string_view content) {
  const std::string_view mark = jinja::stripped(prompt, false, true);
  const std::string_view said = stripped(content);
  if (!text.starts_with(mark) || said.empty()) return npos;
  const std::string_view behind = jinja::stripped(text.substr(mark.size()), true, false);
  // Templates may change what is further on in it.
  return behind.starts_with(said.substr(0, said.find('\n'))) ? text.size() - behind.size() : npos;
}

/// The same where a template begins an answer otherwise than its generation prompt, be it by mistake: the
/// decoder reads the prompt.  But what is not thought stands behind no prompt that begins or ends a thought.
size_t begin_of_content(std::string_view text, std::string_view prompt, std::string_view content) {
  const auto differ = std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end());
  const std::string_view rest = prompt.substr(static_cast<size_t>(differ.first - prompt.begin()));
  const auto mark = opened_by(prompt);
  const bool about_thought = contains(rest, "think>") || (mark && contains(rest, mark->open));
  return about_thought || stripped(content).empty() ? npos : text.rfind(stripped(content));
}

[[noreturn]] void refuse(size_t index, std::string_view prompt, std::string_view text) {
  const auto differ = std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end());
  const size_t at = static_cast<size_t>(differ.first - prompt.begin());
  const auto shown = [](std::string_view part) {
    return part.empty() ? std::string("nothing") : "\"" + repair_utf8(part.substr(0, 40)) + "\"";
  };
  throw InputError(
      "messages[" + std::to_string(index) +
      "]: the chat template does not write this answer behind its own generation prompt (expected " +
      shown(prompt.substr(at)) + ", found " + shown(text.substr(at)) +
      "), so the decoder could not have given it; write it as the model would");
}

}  // namespace

TurnAnswer turn_answer(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                       std::string_view prompt, const TemplateArguments& arguments,
                       const std::function<std::string()>& end_text) {
  const RenderedAnswer chat = chat_template.answer(messages, prompt, arguments);
  const std::string_view text = chat.text;
  const std::string& content = messages.back().content;
  const size_t last = messages.size() - 1;
  const auto from = [&](size_t begin) {
    return TurnAnswer{"", std::string(text.substr(begin, chat.end - begin)),
                      std::string(text.substr(chat.end))};
  };
  if (chat.begin != npos) {
    if (chat.end <= chat.begin)
      throw InputError("messages[" + std::to_string(last) + "]: the chat template does not show this answer");
    if (!chat.marked && lacks_thought(content, text.substr(chat.begin)))
      return {"", content + end_text(), ""};
    TurnAnswer answer = from(chat.begin);
    answer.before = text.substr(prompt.size(), chat.begin - prompt.size());
    return answer;
  }
  if (const auto said = behind_open_thought(prompt, content)) return {"", *said + end_text(), ""};
  size_t begin = begin_behind_other_space(text, prompt, content);
  if (begin == npos) begin = begin_behind_same_end(text, prompt, messages);
  if (begin == npos) begin = begin_of_content(text, prompt, content);
  if (begin == npos || begin >= chat.end || lacks_thought(content, text.substr(begin)))
    refuse(last, prompt, text);
  return from(begin);
}

}  // namespace clover::data
