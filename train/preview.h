#pragma once

#include <string>

#include "data/tokenizer.h"
#include "data/training_input.h"

namespace clover::train {

enum class Marks { brackets, terminal };  // «supervised» | underlined and green

/// A sample's text as the tokens spell it, special tokens included, with the supervised runs marked.  Control
/// characters are spelled out (\x1b), so that data cannot drive a terminal.
std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, Marks marks);

}  // namespace clover::train
