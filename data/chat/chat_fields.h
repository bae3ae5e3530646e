#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/chat/messages.h"

namespace clover::data {

/// Whether a field is absent, null, or an empty string, list or object; also for the strings "[]" and "{}".
bool is_blank_field(const nlohmann::json& record, const char* key);

/// Reads the fields of a record that the model must see beside the messages.  `system` (also system_prompt,
/// system_message) becomes the first of `messages`.  `tools` (also functions), `documents` and
/// `chat_template_kwargs` are added to `arguments` of the chat template.  InputError for a field of the wrong
/// form.
void read_chat_fields(const nlohmann::json& record, OrderedJsonLine& line, std::vector<Message>& messages,
                      TemplateArguments& arguments);

/// InputError when a record has one of these fields, or history or context.  Called for records whose text is
/// used without a chat template.  `form` names the record's form in the message: "prompt and completion".
void refuse_chat_fields(const nlohmann::json& record, const std::string& form);
/// InputError when a record has history or context.  Called for records of messages, since these
/// fields belong to {"question", "answer"}.
void refuse_question_fields(const nlohmann::json& record, const std::string& form);

}  // namespace clover::data
