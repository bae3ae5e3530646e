#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::train {

/// How supervised text is marked: «in brackets», or underlined and green by the escapes of a terminal.
enum class MarkStyle { brackets, terminal };

/// The text with control characters (except line feed and tab) and invalid UTF-8 written as escapes such as
/// \x1b, so that data cannot send commands to a terminal.
std::string printable(std::string_view text);

/// The printable text of a sample's tokens, special ones included, with the supervised runs marked.
std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, MarkStyle style);

}  // namespace clover::train
