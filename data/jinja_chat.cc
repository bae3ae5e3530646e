#include "data/jinja_chat.h"

#include <algorithm>
#include <string_view>

#include "data/error.h"
#include "data/jinja/texts.h"
#include "data/jinja/values.h"
#include "data/utf8.h"

namespace clover::data {
namespace {

/// How much of `prompt` an answer's text goes on from; a character of several bytes is kept whole.
size_t common_begin(std::string_view prompt, std::string_view with_answer) {
  const auto differ = std::mismatch(prompt.begin(), prompt.end(), with_answer.begin(), with_answer.end());
  size_t length = static_cast<size_t>(differ.first - prompt.begin());
  while (length > 0 && length < with_answer.size() && continues_character(with_answer[length])) --length;
  return length;
}

/// Of what an answer adds, the part that the assistant wrote: whitespace behind an end token is the
/// template's.
size_t end_of_answer(std::string_view added, std::string_view content) {
  const std::string_view kept = jinja::stripped(added, false, true);
  const std::string_view said = jinja::stripped(content, true, true);
  return !said.empty() && kept.ends_with(said) ? added.size() : kept.size();
}

}  // namespace

JinjaTemplate::Rendered JinjaChat::rendered(const std::vector<Message>& messages, size_t count,
                                            bool generation_prompt) const {
  JinjaTemplate::json variables = variables_, list = JinjaTemplate::json::array();
  for (size_t i = 0; i < count; ++i)
    list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
  variables["messages"] = std::move(list);
  variables["add_generation_prompt"] = generation_prompt;
  variables["tools"] = variables["documents"] = nullptr;
  try {
    return template_.render(variables);
  } catch (const jinja::Unsupported&) {
    throw;
  } catch (const InputError& error) {
    throw InputError("messages: the chat template refuses them: " + std::string(error.what()));
  }
}

std::string JinjaChat::up_to_answer(const std::vector<Message>& messages, size_t count) const {
  std::string text = rendered(messages, count, false).text;
  const std::string eos = variables_.value("eos_token", std::string());
  if (eos.empty() || !text.ends_with(eos)) return text;
  // Some close a conversation that nobody goes on with by a token of its own, "<|end|>\n<|endoftext|>".
  const std::string without = text.substr(0, text.size() - eos.size());
  try {
    const std::string goes_on = rendered(messages, count, true).text;
    return goes_on.starts_with(without) && !goes_on.starts_with(text) ? without : text;
  } catch (const jinja::Unsupported&) {
    throw;
  } catch (const InputError&) {  // it knows of no answer behind an answer
    return text;
  }
}

RenderedChat JinjaChat::render(const std::vector<Message>& messages, bool generation_prompt) const {
  JinjaTemplate::Rendered all = rendered(messages, messages.size(), generation_prompt);
  RenderedChat chat{std::move(all.text), std::move(all.generations)};
  if (!chat.assistant_spans.empty()) return chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string upto = up_to_answer(messages, i + 1);
    const std::string before = i > 0 ? rendered(messages, i, true).text : "";
    const size_t content_at = upto.rfind(jinja::stripped(messages[i].content, true, true));
    const size_t begin = std::min(common_begin(before, upto), content_at);
    const size_t end = begin + end_of_answer(std::string_view(upto).substr(begin), messages[i].content);
    if (std::string_view(chat.text).starts_with(std::string_view(upto).substr(0, end)))
      chat.assistant_spans.emplace_back(begin, end);
  }
  return chat;
}

}  // namespace clover::data
