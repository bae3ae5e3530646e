#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clover::data::jinja {

/// A token of a template.
struct Token {
  enum class Kind {
    text,
    begin_block,
    end_block,
    begin_output,
    end_output,
    name,
    string,
    integer,  // its digits without underscores
    real,
    symbol,
    end
  };
  Kind kind;
  std::string text;  // of a string: its contents without quotes and escapes
  int line;
};

/// Cuts a template into tokens.  Comments and {% raw %} tags are dropped, and whitespace around tags as minus
/// signs and Hugging Face's settings (trim_blocks, lstrip_blocks) ask.  InputError naming the line.
std::vector<Token> tokenize(std::string_view text);

}  // namespace clover::data::jinja
