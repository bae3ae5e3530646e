#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// A line of JSON once more, its keys in the order they have there, which is what a template prints of them.
/// Parsed when it is first asked for.
class OrderedLine {
 public:
  /// `line`: JSON that was read already; `below`: where in it paths begin, "/body".
  explicit OrderedLine(std::string_view line, std::string below = "")
      : line_(line), below_(std::move(below)) {}

  /// What stands at `path`, "/messages/0/tool_calls".
  nlohmann::ordered_json at(const std::string& path);

 private:
  std::string_view line_;
  std::string below_;
  std::optional<nlohmann::ordered_json> parsed_;
};

/// A conversation, one message or more, in OpenAI's form, [{"role", "content"}], or ShareGPT's, [{"from",
/// "value"}] (or a mixture of both), or in pairs of [{"input", "output"}].  A content is a text or a list of
/// parts that hold text.  What else a message holds goes along as its fields.  InputError names the place
/// below `path` that is not so.
std::vector<Message> read_messages(const nlohmann::json& value, const std::string& path, OrderedLine& line);

/// What is said: a string, or OpenAI's list of parts, of which only text is known here.
std::string as_content(const nlohmann::json& value, const std::string& path);

}  // namespace clover::data
