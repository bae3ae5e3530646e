#include "train/store/preview.h"

#include <cstdio>

#include "data/text/utf8.h"

namespace clover::train {
std::string printable(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const data::Utf8Step step = data::decode_utf8(text, at);
    const char32_t c = step.code_point;
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);  // C0, DEL, C1
    if (step.valid && !control) {
      shown += text.substr(at, step.length);
    } else {
      for (const char byte : text.substr(at, step.length)) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(byte));
        shown += escape;
      }
    }
    at += step.length;
  }
  return shown;
}

std::string preview(const data::TrainingSample& sample, const data::Tokenizer& tokenizer, MarkStyle style) {
  const std::string open = style == MarkStyle::terminal ? "\033[4;32m" : "«";
  const std::string close = style == MarkStyle::terminal ? "\033[0m" : "»";
  std::string text;
  for (size_t begin = 0; begin < sample.ids.size();) {
    size_t end = begin;
    std::string run;
    // The bytes of a run are joined first, since a character may be split over several tokens.
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
