#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::train {

enum class Marks { brackets, terminal };  // «supervised» | underlined and green

/// Text with its control characters but line feed and tab, and bytes that are no UTF-8, spelled out (\x1b),
/// so that data cannot drive a terminal.
std::string printable(std::string_view text);

/// A sample's text as the tokens spell it, special tokens included, with the supervised runs marked;
/// printable.
std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, Marks marks);

}  // namespace clover::train
