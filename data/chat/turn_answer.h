#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// An answer as the decoder would have written it behind its prompt.
struct TurnAnswer {
  std::string before;  // what the template itself puts between prompt and answer
  std::string text;    // with its end token
  std::string after;   // what the template puts behind it
};

/// The last of `messages`, an assistant's, behind `prompt`, the text of those before it with the generation
/// prompt.  `end_text` is asked where the template writes an answer without what the model said (its
/// thoughts).  InputError where the decoder could not have said this behind that prompt.
TurnAnswer turn_answer(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                       std::string_view prompt, const TemplateArguments& arguments,
                       const std::function<std::string()>& end_text);

}  // namespace clover::data
