#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat_template.h"

namespace clover::data {

/// A conversation in OpenAI's form, one message or more: [{"role", "content"}], the content a text or a list
/// of parts that hold text.  InputError names the place below `path` that is not so.
std::vector<Message> read_messages(const nlohmann::json& value, const std::string& path);

}  // namespace clover::data
