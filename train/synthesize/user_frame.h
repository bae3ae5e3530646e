#pragma once

#include <string>
#include <vector>

#include "data/chat/chat_template.h"

namespace clover::train {

/// What a chat template writes around the words of a user's next turn.
struct UserFrame {
  std::string before;  // everything that the model reads before the user's first word
  std::string after;   // what follows the user's last word, up to where the assistant begins
};

/// The frame of the turn that follows `messages`.  A model that continues UserFrame::before says what a user
/// would say: it has seen such turns when it was tuned (Magpie, arXiv 2406.08464, section 2).  InputError
/// when the template cannot render such a conversation.
UserFrame user_frame(const data::ChatTemplate& chat_template, const std::vector<data::Message>& messages);

}  // namespace clover::train
