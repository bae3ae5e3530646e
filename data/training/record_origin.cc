#include "data/training/record_origin.h"

#include <string_view>
#include <variant>

namespace clover::data {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// The messages up to the first user message; all of them without one.
std::string conversation_start(const std::vector<Message>& messages) {
  std::string text("messages\0", 9);  // no prompt of plain text begins with it
  const auto append = [&](const Message& message) {
    text.append(message.role).append(1, '\0').append(trimmed(message.content)).append(1, '\0');
  };
  for (const Message& message : messages) {
    append(message);
    if (message.role == "user") break;
  }
  return text;
}

/// For std::visit of a record's content.
struct OriginVisitor {
  size_t sample;

  SampleOrigin operator()(const ChatRecord& record) const { return {conversation_start(record.messages)}; }
  SampleOrigin operator()(const CompletionRecord& record) const {
    return {record.prompt, record.prompt + record.completion};
  }
  SampleOrigin operator()(const TextRecord& record) const { return {"", record.text}; }
  SampleOrigin operator()(const TokensRecord&) const { return {}; }
  SampleOrigin operator()(const BatchOutputRecord& record) const {
    if (record.is_chat) return {conversation_start(record.messages)};
    if (record.prompts.empty()) return {record.prompt, record.prompt + record.texts.at(0)};
    const BatchOutputRecord::Prompt& prompt = record.prompts.at(sample);
    if (!prompt.ids.empty()) return {};
    return {prompt.text, prompt.text + record.texts.at(sample)};
  }
};

}  // namespace

SampleOrigin sample_origin(const TrainingRecord& record, size_t sample) {
  return std::visit(OriginVisitor{sample}, record.content);
}

}  // namespace clover::data
