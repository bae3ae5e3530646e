#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/messages.h"

namespace clover::data {

/// Whether a field says nothing: it is absent, null, or an empty text, list or object.
bool says_nothing(const nlohmann::json& record, const char* key);

/// What stands beside a conversation and the model is to read with it: `system` (system_prompt,
/// system_message) becomes the first message; `tools` (functions), `documents` and `chat_template_kwargs` are
/// the template's arguments.  InputError where one has not the form that templates take.
void put_beside(const nlohmann::json& record, OrderedLine& line, std::vector<Message>& messages,
                TemplateArguments& arguments);

/// InputError where something of that kind stands beside `form`, which has no use for it.
void refuse_beside_text(const nlohmann::json& record, const std::string& form);
/// The same for what has no place beside a conversation that is told in messages.
void refuse_beside_messages(const nlohmann::json& record, const std::string& form);

}  // namespace clover::data
