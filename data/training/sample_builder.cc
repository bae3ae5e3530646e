#include "data/training/sample_builder.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "data/chat/generated_answer.h"
#include "data/chat/jinja/values/texts.h"
#include "data/files/error.h"
#include "data/training/sample_tokens.h"

namespace clover::data {
namespace {

const std::string probe_word = "Zyzzyva";  // a word that occurs in no template

/// The text of the template's end token, "<|im_end|>" for ChatML; "" without one.
std::string end_text(const ChatTemplate& chat_template) {
  const RenderedChat chat = chat_template.render({{"user", "q"}, {"assistant", probe_word}}, false);
  if (chat.assistant_spans.empty()) return "";
  const auto [begin, end] = chat.assistant_spans[0];
  const size_t answer_at = chat.text.find(probe_word, begin);
  if (answer_at >= end) return "";
  const size_t answer_end = answer_at + probe_word.size();
  const size_t token_at = std::min(chat.text.find_first_not_of(' ', answer_end), end);
  return chat.text.substr(token_at, end - token_at);
}

/// The prompt of `answer`: the text of the messages before it with the generation prompt.  If there are no
/// messages before it, the text that the template writes before an answer.
std::string prompt_of(const ChatTemplate& chat_template, const std::vector<Message>& messages_before,
                      const Message& answer, const TemplateArguments& arguments) {
  if (!messages_before.empty()) return chat_template.text(messages_before, true, arguments);
  const RenderedAnswer rendered = chat_template.answer({answer}, "", arguments);
  if (rendered.by_generation_tag) return rendered.text.substr(0, rendered.begin);
  const RenderedChat chat = chat_template.render({answer}, false, arguments);
  return chat.assistant_spans.empty() ? "" : chat.text.substr(0, chat.assistant_spans[0].first);
}

}  // namespace

SampleBuilder::SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : tokenizer_(tokenizer), chat_template_(chat_template) {
  end_text_ = [&chat_template, cached = std::make_shared<std::optional<std::string>>()] {
    if (!*cached) *cached = end_text(chat_template);
    return **cached;
  };
}

std::vector<TrainingSample> SampleBuilder::operator()(const ChatRecord& record) const {
  const bool add_bos = tokenizer_.adds_bos() && !chat_template_.text_has_bos();
  SampleTokens tokens(tokenizer_);
  std::vector<Message> messages_so_far;  // up to the current message
  bool answered = false;
  for (size_t i = 0; i < record.messages.size(); ++i) {
    const Message& message = record.messages[i];
    messages_so_far.push_back(message);
    if (message.role != "assistant") continue;
    answered = true;
    if (!record.supervised_messages.empty() && record.supervised_messages[i] == 0) continue;
    const std::vector<Message> messages_before(record.messages.begin(), record.messages.begin() + i);
    const std::string prompt = prompt_of(chat_template_, messages_before, message, record.arguments);
    const GeneratedAnswer answer =
        generated_answer(chat_template_, messages_so_far, prompt, record.arguments, end_text_);
    tokens.append_prompt(prompt, add_bos);
    tokens.append_unsupervised(answer.before);
    const bool is_last = i + 1 == record.messages.size();
    tokens.append_answer(answer.text, is_last ? answer.after : "");
  }
  if (!answered) throw InputError("the conversation: expected an assistant's answer, found none");
  return tokens.finish();
}

std::vector<TrainingSample> SampleBuilder::operator()(const CompletionRecord& record) const {
  SampleTokens tokens(tokenizer_);
  tokens.append_prompt(record.prompt, tokenizer_.adds_bos());
  std::string end = end_text_();
  // A completion ends as an answer does: with the chat template's end token, or else the tokenizer's.
  if (end.empty() && tokenizer_.eos()) end = *tokenizer_.eos_text();
  tokens.append_answer(record.completion + end);
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

/// The answers are the ids that the model generated.  As in `clover-infer batch`, the prompt of a turn is the
/// text of the whole conversation so far.  In that prompt an earlier answer lacks its stop string and may be
/// tokenised differently from the ids that were generated.
std::vector<TrainingSample> SampleBuilder::operator()(const BatchOutputRecord& record) const {
  if (!record.is_chat) return samples_of_prompts(record);
  SampleTokens tokens(tokenizer_);
  const bool add_bos = tokenizer_.adds_bos() && !chat_template_.text_has_bos();
  std::vector<Message> messages = record.messages;
  for (size_t turn = 0; turn < record.answers.size(); ++turn) {
    tokens.append_prompt(chat_template_.text(messages, true, record.arguments), add_bos);
    tokens.append_answer(record.answers[turn]);
    if (turn + 1 == record.answers.size()) break;
    messages.push_back({"assistant", record.texts[turn]});
    messages.push_back({"user", record.later_turns[turn]});
  }
  return tokens.finish();
}

std::vector<TrainingSample> SampleBuilder::samples_of_prompts(const BatchOutputRecord& record) const {
  std::vector<TrainingSample> samples;
  for (size_t i = 0; i < record.answers.size(); ++i) {
    SampleTokens tokens(tokenizer_);
    if (!record.prompts.empty() && !record.prompts[i].ids.empty()) {
      tokens.append_prompt(record.prompts[i].ids);
    } else {
      tokens.append_prompt(record.prompts.empty() ? record.prompt : record.prompts[i].text,
                           tokenizer_.adds_bos());
    }
    tokens.append_answer(record.answers[i]);
    for (TrainingSample& sample : tokens.finish()) samples.push_back(std::move(sample));
  }
  return samples;
}

std::string masking_notice(const ChatTemplate& chat_template) {
  try {
    const RenderedAnswer chat = chat_template.answer({{"user", "q"}, {"assistant", probe_word}},
                                                     chat_template.text({{"user", "q"}}, true));
    const bool covers_end_token =
        jinja::stripped(std::string_view(chat.text).substr(chat.end), true, true).empty();
    if (!chat.by_generation_tag || covers_end_token) return "";
    return "the chat template marks what the assistant says ({% generation %}) without the end token behind "
           "it: "
           "where answers end is not learned";
  } catch (const InputError&) {
    return "";  // the same error is reported for every record
  }
}

}  // namespace clover::data
