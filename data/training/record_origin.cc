#include "data/training/record_origin.h"

#include <string_view>
#include <variant>

namespace clover::data {
namespace {

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// Messages up to the user's first, or before the first answer where no user says anything.
std::string beginning(const std::vector<Message>& messages) {
  std::string text("messages\0", 9);
  const auto append = [&](const Message& message) {
    text.append(message.role).append(1, '\0').append(stripped(message.content)).append(1, '\0');
  };
  for (const Message& message : messages) {
    append(message);
    if (message.role == "user") break;
  }
  return text;
}

struct Origin {
  size_t sample;

  SampleOrigin operator()(const ChatRecord& record) const { return {beginning(record.messages)}; }
  SampleOrigin operator()(const CompletionRecord& record) const {
    return {record.prompt, record.prompt + record.completion};
  }
  SampleOrigin operator()(const TextRecord& record) const { return {"", record.text}; }
  SampleOrigin operator()(const TokensRecord&) const { return {}; }
  SampleOrigin operator()(const AnsweredRecord& record) const {
    if (record.is_chat) return {beginning(record.messages)};
    if (record.prompts.empty()) return {record.prompt, record.prompt + record.texts.at(0)};
    const AnsweredRecord::Prompt& prompt = record.prompts.at(sample);
    if (!prompt.ids.empty()) return {};
    return {prompt.text, prompt.text + record.texts.at(sample)};
  }
};

}  // namespace

SampleOrigin origin_of(const TrainingRecord& record, size_t sample) {
  return std::visit(Origin{sample}, record.content);
}

}  // namespace clover::data
