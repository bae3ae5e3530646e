#include "data/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/files/error.h"

namespace clover::data {
namespace {

const icu::Normalizer2& nfc_normalizer() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) throw std::runtime_error("ICU has no NFC data: " + std::string(u_errorName(status)));
  return *nfc;
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
}

using Step = Normalizer::Step;
using StepKind = Step::Kind;

AlignedText compose(std::string_view text) {
  if (is_ascii(text)) return AlignedText(text);
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError("text to tokenize: expected at most 2 GiB, found " + std::to_string(text.size()) +
                     " bytes");
  }
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed);
  icu::Edits edits;
  UErrorCode status = U_ZERO_ERROR;
  nfc_normalizer().normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                                 &edits, status);
  if (U_FAILURE(status))
    throw std::runtime_error("ICU could not normalise: " + std::string(u_errorName(status)));
  if (!edits.hasChanges()) return AlignedText(text);
  AlignedText mapped;
  for (icu::Edits::Iterator edit = edits.getFineIterator(); edit.next(status);) {
    const auto source = static_cast<size_t>(edit.sourceIndex());
    const std::string_view bytes(composed.data() + edit.destinationIndex(),
                                 static_cast<size_t>(edit.newLength()));
    if (edit.hasChange()) {
      mapped.append_replacement(bytes, source, source + static_cast<size_t>(edit.oldLength()));
    } else {
      mapped.append_copy(bytes, source);
    }
  }
  return mapped;
}

AlignedText replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  size_t found = pattern.empty() ? text.npos : text.find(pattern);
  if (found == text.npos) return AlignedText(text);
  AlignedText mapped;
  size_t position = 0;
  for (; found != text.npos; found = text.find(pattern, position)) {
    mapped.append_copy(text.substr(position, found - position), position);
    position = found + pattern.size();
    mapped.append_replacement(content, found, position);
  }
  mapped.append_copy(text.substr(position), position);
  return mapped;
}

AlignedText replace_leading(std::string_view text, std::string_view pattern, std::string_view content) {
  if (!text.starts_with(pattern)) return AlignedText(text);
  AlignedText mapped;
  mapped.append_replacement(content, 0, pattern.size());
  mapped.append_copy(text.substr(pattern.size()), pattern.size());
  return mapped;
}

AlignedText trim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = begin == text.size() ? begin : text.find_last_not_of(' ') + 1;
  if (begin == 0 && end == text.size()) return AlignedText(text);
  AlignedText mapped;
  mapped.append_copy(text.substr(begin, end - begin), begin);
  return mapped;
}

AlignedText squeeze(std::string_view text) {
  if (text.find("  ") == text.npos) return AlignedText(text);
  AlignedText mapped;
  for (size_t i = 0; i < text.size();) {
    const size_t spaces = std::min(text.find_first_not_of(' ', i), text.size()) - i;
    const size_t length = std::max<size_t>(spaces, 1);
    if (length > 1) {
      mapped.append_replacement(" ", i, i + length);
    } else {
      mapped.append_copy(text.substr(i, 1), i);
    }
    i += length;
  }
  return mapped;
}

AlignedText apply_step(const Step& step, std::string_view text) {
  switch (step.kind) {
    case StepKind::compose:
      return compose(text);
    case StepKind::prepend: {
      if (text.empty()) break;
      AlignedText mapped;
      mapped.append_replacement(step.content, 0, 0);
      mapped.append_copy(text, 0);
      return mapped;
    }
    case StepKind::replace:
      return replace_all(text, step.pattern, step.content);
    case StepKind::trim:
      return trim(text);
    case StepKind::squeeze:
      return squeeze(text);
    case StepKind::replace_leading:
      return replace_leading(text, step.pattern, step.content);
  }
  return AlignedText(text);
}

[[noreturn]] void refuse_normalizer(const std::string& where, const nlohmann::json& found) {
  throw InputError(where + ": expected no normalizer, NFC, Prepend or Replace, found " +
                   found.dump().substr(0, 300));
}

// A "Replace" of a text, or of one of the regular expressions with which transformers writes SentencePiece's
// handling of spaces.
Step replace_step(const nlohmann::json& config, const std::string& where) {
  const nlohmann::json pattern = config.value("pattern", nlohmann::json());
  const nlohmann::json content = config.value("content", nlohmann::json());
  if (!pattern.is_object() || !content.is_string()) refuse_normalizer(where, config);
  const auto text = content.get<std::string>();
  if (pattern.contains("String") && pattern["String"].is_string())
    return {StepKind::replace, pattern["String"].get<std::string>(), text};
  const nlohmann::json expression = pattern.value("Regex", nlohmann::json());
  if (expression == R"(\A +| +\z)" && text.empty()) return {StepKind::trim, "", ""};
  if (expression == " {2,}" && text == " ") return {StepKind::squeeze, "", ""};
  if (expression == "\\A\xE2\x96\x81") return {StepKind::replace_leading, "\xE2\x96\x81", text};
  refuse_normalizer(where, config);
}

}  // namespace

void Normalizer::add(const nlohmann::json& config, const std::string& where) {
  const nlohmann::json type = config.is_object() ? config.value("type", nlohmann::json()) : nlohmann::json();
  if (type == "NFC") {
    steps_.push_back({StepKind::compose, "", ""});
  } else if (type == "Prepend" && config.contains("prepend") && config["prepend"].is_string()) {
    steps_.push_back({StepKind::prepend, "", config["prepend"].get<std::string>()});
  } else if (type == "Replace") {
    steps_.push_back(replace_step(config, where));
  } else if (type == "Sequence" && config.contains("normalizers") && config["normalizers"].is_array()) {
    for (const nlohmann::json& part : config["normalizers"]) add(part, where);
  } else {
    refuse_normalizer(where, config);
  }
}

Normalizer Normalizer::from_json(const nlohmann::json& config, const std::string& where) {
  Normalizer normalizer;
  if (!config.is_null()) normalizer.add(config, where);
  return normalizer;
}

AlignedText Normalizer::apply(std::string_view text) const {
  AlignedText result(text);
  for (const Step& step : steps_) {
    AlignedText next = apply_step(step, result.text());
    if (!next.is_unchanged()) result = std::move(next).composed_with(result);
  }
  return result;
}

}  // namespace clover::data
