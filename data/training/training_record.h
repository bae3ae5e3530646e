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
  std::vector<uint8_t> supervised_messages =
      {};  // for each message 0 if it is not supervised; empty: all of the assistant's are
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
  std::vector<uint8_t> supervised;  // as long as ids
};

/// A line of the output of `clover-infer batch`, whose token ids the model generated.
struct BatchOutputRecord {
  /// One of a list of prompts: a text or token ids.
  struct Prompt {
    std::string text;
    std::vector<int64_t> ids;
  };

  bool is_chat = false;
  std::string prompt;             // of a request that is no chat
  std::vector<Prompt> prompts;    // instead of `prompt` where that is a list; one for each answer
  std::vector<Message> messages;  // of a chat: the messages before the first answer
  TemplateArguments arguments = nullptr;
  std::vector<std::string> later_turns;  // user messages after answer 0, 1, ..
  std::vector<std::string> texts;        // texts of the answers
  std::vector<std::vector<int64_t>>
      answers;  // token ids; as many as texts, at least one, at most later_turns + 1
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
