#include "train/preview.h"

#include <cstdio>

namespace clover::train {
namespace {

std::string printable(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      char spelled[8];
      std::snprintf(spelled, sizeof spelled, "\\x%02x", byte);
      shown += spelled;
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, Marks marks) {
  const std::string open = marks == Marks::terminal ? "\033[4;32m" : "«";
  const std::string close = marks == Marks::terminal ? "\033[0m" : "»";
  std::string text;
  for (size_t begin = 0; begin < sample.ids.size();) {
    size_t end = begin;
    std::string run;
    // Bytes of a whole run together: a character may be spread over several tokens.
    while (end < sample.ids.size() && sample.supervised[end] == sample.supervised[begin]) {
      run += tokenizer.token_bytes(sample.ids[end], end == 0);
      ++end;
    }
    text += sample.supervised[begin] ? open + printable(run) + close : printable(run);
    begin = end;
  }
  return text;
}

}  // namespace clover::train
