#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/lexer.h"
#include "data/files/error.h"

namespace clover::data::jinja {

/// The parsers' position in the tokens of a template, and how they move it.
class TokenReader {
 protected:
  static constexpr int max_depth = 100;  // nesting of expressions and blocks

  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError("line " + std::to_string(now().line) + ": " + what);
  }
  static std::string described(const Token& token) {
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
  bool is_symbol(const char* text) const { return now().kind == Token::Kind::symbol && now().text == text; }
  bool is_word(const char* text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool skip_symbol(const char* text) {
    const bool is = is_symbol(text);
    at_ += is;
    return is;
  }
  bool skip_word(const char* text) {
    const bool is = is_word(text);
    at_ += is;
    return is;
  }
  void expect_symbol(const char* text) {
    if (!skip_symbol(text)) fail(std::string("expected \"") + text + "\", found " + described(now()));
  }
  void expect_end() {
    if (now().kind != Token::Kind::end_block) fail("expected the end of the tag, found " + described(now()));
    ++at_;
  }
  std::string name() {
    if (now().kind != Token::Kind::name) fail("expected a name, found " + described(now()));
    return tokens_[at_++].text;
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
  size_t at_ = 0;

 private:
  int depth_ = 0;
};

}  // namespace clover::data::jinja
