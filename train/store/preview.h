#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::train {

enum class Marks { brackets, terminal };  // supervised text is shown «in brackets» | underlined and green

/// The text with control characters (except line feed and tab) and invalid UTF-8 written as escapes, \x1b, so
/// that data cannot send commands to a terminal.
std::string printable(std::string_view text);

/// The text of a sample's tokens, special ones included, printable, with the supervised runs marked.
std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, Marks marks);

}  // namespace clover::train
