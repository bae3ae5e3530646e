#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// A conversation; the assistant's messages are supervised.
struct ChatRecord {
  std::vector<Message> messages;
  TemplateArguments arguments = nullptr;
  /// For each message 0 if it is not supervised.  Empty: all messages of the assistant are supervised.
  std::vector<uint8_t> supervised_messages = {};
};

/// Text used without a chat template; the completion is supervised.
struct CompletionRecord {
  std::string prompt;
  std::string completion;
};

/// Text used without a chat template; all of it is supervised.
struct TextRecord {
  std::string text;
};

/// Token ids with their loss mask.
struct TokensRecord {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // 0 or 1 for each id
};

/// A line of the output of `clover-infer batch`: a request and its answers, which the model generated.
struct BatchOutputRecord {
  /// A prompt: token ids, or a text where `ids` is empty.
  struct Prompt {
    std::string text;
    std::vector<int64_t> ids;
  };

  bool is_chat = false;  // the request had messages or turns

  // Without a chat:
  std::string prompt;           // the only prompt, if it is a text
  std::vector<Prompt> prompts;  // one for each answer, if the request had token ids or a list of prompts

  // For a chat:
  std::vector<Message> messages;  // before the first answer
  TemplateArguments arguments = nullptr;
  std::vector<std::string> later_turns;  // user messages after answer 0, 1, ..

  // The answers; at least one.  A chat has at most one more than `later_turns`.
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> answers;  // token ids of each of `texts`
};

/// One record of training data.
struct TrainingRecord {
  std::variant<ChatRecord, CompletionRecord, TextRecord, TokensRecord, BatchOutputRecord> content;
  std::string category;  // "" when the record has none
};

/// Parses one JSON record of any form of training data.  Unknown fields are ignored.  InputError names the
/// field: "messages[2].content: expected a string, found a number".
TrainingRecord parse_training_record(std::string_view line);

}  // namespace clover::data
