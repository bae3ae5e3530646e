#include "train/synthesize/user_frame.h"

#include "data/files/error.h"

namespace clover::train {

UserFrame user_frame(const data::ChatTemplate& chat_template, const std::vector<data::Message>& messages) {
  static const std::string words = "Where-the-user-speaks";  // no template writes this by itself
  std::vector<data::Message> with_user = messages;
  with_user.push_back({"user", words});
  const std::string text = chat_template.text(with_user, /*generation_prompt=*/true);
  const size_t begin = text.rfind(words);
  if (begin == std::string::npos) {
    throw data::InputError("The chat template " + chat_template.name() +
                           " does not show what a user says as it is, so no user turns can be drawn from it: "
                           "expected a template "
                           "that writes the message's text; give another by --template.");
  }
  return {text.substr(0, begin), text.substr(begin + words.size())};
}

}  // namespace clover::train
