#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/lexer.h"
#include "data/files/error.h"

namespace clover::data::jinja {

/// The tokens of a template and the current position in them: the base of the parsers.
class TokenReader {
 protected:
  static constexpr int max_depth = 100;  // nesting of expressions and blocks

  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& peek() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError("line " + std::to_string(current().line) + ": " + message);
  }
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::end_block:
      case Token::Kind::end_output:
        return "the end of the tag";
      default:
        return "\"" + token.text.substr(0, 40) + "\"";
    }
  }
  bool is_symbol(const char* text) const {
    return current().kind == Token::Kind::symbol && current().text == text;
  }
  bool is_word(const char* text) const {
    return current().kind == Token::Kind::name && current().text == text;
  }
  // The skip functions consume the current token if it is `text`, and return whether it was.
  bool skip_symbol(const char* text) {
    const bool found = is_symbol(text);
    position_ += found;
    return found;
  }
  bool skip_word(const char* text) {
    const bool found = is_word(text);
    position_ += found;
    return found;
  }
  void expect_symbol(const char* text) {
    if (!skip_symbol(text)) fail(std::string("expected \"") + text + "\", found " + describe(current()));
  }
  void expect_tag_end() {
    if (current().kind != Token::Kind::end_block)
      fail("expected the end of the tag, found " + describe(current()));
    ++position_;
  }
  std::string name() {  // consumes a name
    if (current().kind != Token::Kind::name) fail("expected a name, found " + describe(current()));
    return tokens_[position_++].text;
  }

  /// Calls `item` for each element of a comma-separated list that ends with the bracket `closing`.
  template <class Item>
  void comma_list_until(const char* closing, const Item& item) {
    while (!skip_symbol(closing)) {
      item();
      if (!is_symbol(closing)) expect_symbol(",");
    }
  }

  /// Counts a level of nesting while it lives; InputError beyond max_depth.
  struct Level {
    explicit Level(TokenReader& reader) : reader(reader) {
      if (++reader.depth_ > max_depth) reader.fail("expected less within each other");
    }
    ~Level() { --reader.depth_; }
    TokenReader& reader;
  };

  std::vector<Token> tokens_;
  size_t position_ = 0;

 private:
  int depth_ = 0;
};

}  // namespace clover::data::jinja
