#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// A conversation; loss on what the assistant says.
struct ChatRecord {
  std::vector<Message> messages;
  TemplateArguments arguments = nullptr;
  std::vector<uint8_t> learned =
      {};  // of each message, whether it is learned if an assistant's; empty: all are
};

/// Text as it stands, without a chat template; loss on the completion.
struct CompletionRecord {
  std::string prompt;
  std::string completion;
};

/// Text as it stands; loss on all of it.
struct TextRecord {
  std::string text;
};

struct TokensRecord {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // as long as ids
};

/// A line of a batch job's output: the token ids are the model's own.
struct AnsweredRecord {
  /// One of a list of prompts: a text, or else the ids of its tokens.
  struct Prompt {
    std::string text;
    std::vector<int64_t> ids;
  };

  bool is_chat = false;
  std::string prompt;             // plain text, when it is no chat
  std::vector<Prompt> prompts;    // in its place, when it is a list; one for each answer
  std::vector<Message> messages;  // up to the first answer, when it is a chat
  TemplateArguments arguments = nullptr;
  std::vector<std::string> later_turns;       // what the user says after answer 0, 1, ..
  std::vector<std::string> texts;             // of the answers
  std::vector<std::vector<int64_t>> answers;  // as many as texts, at least one, at most later_turns + 1
};

struct TrainingRecord {
  std::variant<ChatRecord, CompletionRecord, TextRecord, TokensRecord, AnsweredRecord> content;
  std::string category;  // "" when the record has none
};

/// Reads one line of JSON in any shape of training data; unknown fields are left alone.  InputError says
/// which field is wrong: "messages[2].content: expected a string, found a number".
TrainingRecord parse_training_record(std::string_view line);

}  // namespace clover::data
