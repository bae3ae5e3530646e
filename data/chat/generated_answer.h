#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::data {

/// The text of an answer, split into what the model generates after its prompt and what the template adds.
struct GeneratedAnswer {
  std::string before;  // text of the template between prompt and answer
  std::string text;    // what the model generates, with its end token
  std::string after;   // text of the template after the answer
};

/// Splits the last of `messages`, an answer of the assistant.  `prompt`: the text of the messages before it
/// with the generation prompt.  `end_text` returns the text of the template's end token.  It is called where
/// the template drops the answer's reasoning, so that the generated text is the content and the end token.
/// InputError when the model could not have generated the answer after that prompt.
GeneratedAnswer generated_answer(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                                 std::string_view prompt, const TemplateArguments& arguments,
                                 const std::function<std::string()>& end_text);

}  // namespace clover::data
