#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clover::data::jinja {

struct Token {
  enum class Kind {
    text,
    begin_block,
    end_block,
    begin_output,
    end_output,
    name,
    string,
    whole,  // a number, its digits without underscores
    real,
    symbol,
    end
  };
  Kind kind;
  std::string text;  // of a string its contents
  int line;
};

/// Cuts a template into tokens, dropping comments, marks of raw text and the whitespace around tags that
/// Hugging Face's settings (trim_blocks, lstrip_blocks) and minus signs drop.  InputError naming the line.
std::vector<Token> cut(std::string_view text);

}  // namespace clover::data::jinja
