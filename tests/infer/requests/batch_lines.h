#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "infer/requests/batch_input.h"

// Lines of a batch file, as the tests of batch_input.h parse them.
namespace clover::infer {

/// The request of a valid record on line 3; fails the test when it is refused.
inline BatchLine read_valid(const nlohmann::json& record, const SamplingParams& defaults = {}) {
  auto parsed = parse_batch_line(3, record.dump(), defaults);
  const BadLine* bad = std::get_if<BadLine>(&parsed);
  EXPECT_FALSE(bad) << record.dump() << ": " << (bad ? bad->message : "");
  return bad ? BatchLine{} : std::get<BatchLine>(parsed);
}

/// The error of an invalid line 3; fails the test when it is accepted.
inline BadLine read_invalid(const std::string& text) {
  auto parsed = parse_batch_line(3, text, {});
  EXPECT_TRUE(std::holds_alternative<BadLine>(parsed)) << text;
  return std::holds_alternative<BadLine>(parsed) ? std::get<BadLine>(parsed) : BadLine{};
}

inline BadLine read_invalid_record(const nlohmann::json& record) {
  return read_invalid(record.dump());
}

/// A line of OpenAI's batch format with this body of a chat request.
inline nlohmann::json openai_chat(const nlohmann::json& body) {
  return {{"custom_id", "a-1"}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", body}};
}

/// Messages of a conversation that begins with "Hello".
inline const nlohmann::json hello = nlohmann::json::array({{{"role", "user"}, {"content", "Hello"}}});

}  // namespace clover::infer
