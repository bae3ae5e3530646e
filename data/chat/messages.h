#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// A JSON line whose objects keep the order of their keys, since templates print them in that order.  It is
/// parsed when it is first used.
class OrderedJsonLine {
 public:
  /// `line`: JSON that was parsed and checked before.  `pointer_prefix`: a JSON pointer, "/body", to which
  /// the paths of `at` are relative.
  explicit OrderedJsonLine(std::string_view line, std::string pointer_prefix = "")
      : line_(line), pointer_prefix_(std::move(pointer_prefix)) {}

  /// The value at `path`, a JSON pointer: "/messages/0/tool_calls".
  nlohmann::ordered_json at(const std::string& path);

 private:
  std::string_view line_;
  std::string pointer_prefix_;
  std::optional<nlohmann::ordered_json> parsed_;
};

/// Reads a conversation of at least one message: OpenAI's [{"role", "content"}], ShareGPT's [{"from",
/// "value"}], a mix of both, or pairs [{"input", "output"}].  A content is a text or a list of text parts.
/// Other fields of a message are kept in Message::fields.  InputError names the field: "<path>[2].role".
std::vector<Message> read_messages(const nlohmann::json& value, const std::string& path,
                                   OrderedJsonLine& line);

/// A message's content: a string, or OpenAI's list of parts, which must all be text.
std::string read_content(const nlohmann::json& value, const std::string& path);

}  // namespace clover::data
