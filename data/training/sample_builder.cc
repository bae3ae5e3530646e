#include "data/training/sample_builder.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "data/chat/jinja/values/texts.h"
#include "data/chat/turn_answer.h"
#include "data/files/error.h"
#include "data/training/sample_tokens.h"

namespace clover::data {
namespace {

const std::string probe = "Zyzzyva";  // that no template holds

/// The text of the token an assistant's answer ends with in this format, "<|im_end|>" for ChatML; "" when it
/// has none.
std::string end_text(const ChatTemplate& chat_template) {
  const RenderedChat chat = chat_template.render({{"user", "q"}, {"assistant", probe}}, false);
  if (chat.assistant_spans.empty()) return "";
  const auto [begin, end] = chat.assistant_spans[0];
  const size_t answer_at = chat.text.find(probe, begin);
  if (answer_at >= end) return "";
  const size_t answer_end = answer_at + probe.size();
  const size_t token_at = std::min(chat.text.find_first_not_of(' ', answer_end), end);
  return chat.text.substr(token_at, end - token_at);
}

/// What the decoder reads before the first message; where nothing stands before an answer, what the template
/// puts there.
std::string prompt_of(const ChatTemplate& chat_template, const std::vector<Message>& said,
                      const Message& answer, const TemplateArguments& arguments) {
  if (!said.empty()) return chat_template.text(said, true, arguments);
  const RenderedAnswer whole = chat_template.answer({answer}, "", arguments);
  if (whole.marked) return whole.text.substr(0, whole.begin);
  const RenderedChat chat = chat_template.render({answer}, false, arguments);
  return chat.assistant_spans.empty() ? "" : chat.text.substr(0, chat.assistant_spans[0].first);
}

}  // namespace

SampleBuilder::SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : tokenizer_(tokenizer), chat_template_(chat_template) {
  end_text_ = [&chat_template, known = std::make_shared<std::optional<std::string>>()] {
    if (!*known) *known = end_text(chat_template);
    return **known;
  };
}

std::vector<TrainingSample> SampleBuilder::operator()(const ChatRecord& record) const {
  const bool add_bos = tokenizer_.adds_bos() && !chat_template_.text_has_bos();
  SampleTokens tokens(tokenizer_);
  std::vector<Message> said;
  bool answered = false;
  for (size_t i = 0; i < record.messages.size(); ++i) {
    const Message& message = record.messages[i];
    said.push_back(message);
    if (message.role != "assistant") continue;
    answered = true;
    if (!record.learned.empty() && record.learned[i] == 0) continue;
    const std::vector<Message> before(record.messages.begin(), record.messages.begin() + i);
    const std::string prompt = prompt_of(chat_template_, before, message, record.arguments);
    const TurnAnswer answer = turn_answer(chat_template_, said, prompt, record.arguments, end_text_);
    tokens.read(prompt, add_bos);
    tokens.skip(answer.before);
    const bool last = i + 1 == record.messages.size();
    tokens.write(answer.text, last ? answer.after : "");
  }
  if (!answered) throw InputError("the conversation: expected an assistant's answer, found none");
  return tokens.finish();
}

std::vector<TrainingSample> SampleBuilder::operator()(const CompletionRecord& record) const {
  SampleTokens tokens(tokenizer_);
  tokens.read(record.prompt, tokenizer_.adds_bos());
  std::string end = end_text_();
  // Where no template ends an answer, the decoder ends it at the tokenizer's own end token.
  if (end.empty() && tokenizer_.eos()) end = *tokenizer_.eos_text();
  tokens.write(record.completion + end);
  return tokens.finish();
}

std::vector<TrainingSample> SampleBuilder::operator()(const TextRecord& record) const {
  TrainingSample sample;
  sample.ids = tokenizer_.encode(record.text, {.add_bos = tokenizer_.adds_bos()});
  sample.supervised.assign(sample.ids.size(), 1);
  return {std::move(sample)};
}

std::vector<TrainingSample> SampleBuilder::operator()(const TokensRecord& record) const {
  return {{record.ids, record.supervised, ""}};
}

/// The answers are the model's own ids, and each stands behind what a batch job reads before it: the whole
/// conversation so far as text, in which an earlier answer is without its stop text and may be other tokens.
std::vector<TrainingSample> SampleBuilder::operator()(const AnsweredRecord& record) const {
  if (!record.is_chat) return answered_prompts(record);
  SampleTokens tokens(tokenizer_);
  const bool add_bos = tokenizer_.adds_bos() && !chat_template_.text_has_bos();
  std::vector<Message> messages = record.messages;
  for (size_t turn = 0; turn < record.answers.size(); ++turn) {
    tokens.read(chat_template_.text(messages, true, record.arguments), add_bos);
    tokens.write(record.answers[turn]);
    if (turn + 1 == record.answers.size()) break;
    messages.push_back({"assistant", record.texts[turn]});
    messages.push_back({"user", record.later_turns[turn]});
  }
  return tokens.finish();
}

/// One sample a prompt.
std::vector<TrainingSample> SampleBuilder::answered_prompts(const AnsweredRecord& record) const {
  std::vector<TrainingSample> samples;
  for (size_t i = 0; i < record.answers.size(); ++i) {
    SampleTokens tokens(tokenizer_);
    if (!record.prompts.empty() && !record.prompts[i].ids.empty()) {
      tokens.read(record.prompts[i].ids);
    } else {
      tokens.read(record.prompts.empty() ? record.prompt : record.prompts[i].text, tokenizer_.adds_bos());
    }
    tokens.write(record.answers[i]);
    for (TrainingSample& sample : tokens.finish()) samples.push_back(std::move(sample));
  }
  return samples;
}

std::string notice_of(const ChatTemplate& chat_template) {
  try {
    const RenderedAnswer chat = chat_template.answer({{"user", "q"}, {"assistant", probe}},
                                                     chat_template.text({{"user", "q"}}, true));
    const bool ends = jinja::stripped(std::string_view(chat.text).substr(chat.end), true, true).empty();
    if (!chat.marked || ends) return "";
    return "the chat template marks what the assistant says ({% generation %}) without the end token behind "
           "it: "
           "where answers end is not learned";
  } catch (const InputError&) {
    return "";  // then every record says why
  }
}

}  // namespace clover::data
