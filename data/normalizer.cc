#include "data/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/error.h"

namespace clover::data {
namespace {

const icu::Normalizer2& composer() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) throw std::runtime_error("ICU has no NFC data: " + std::string(u_errorName(status)));
  return *nfc;
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
}

}  // namespace

Normalizer Normalizer::from_json(const nlohmann::json& config, const std::string& where) {
  Normalizer normalizer;
  if (config.is_null()) return normalizer;
  const nlohmann::json type = config.is_object() ? config.value("type", nlohmann::json()) : nlohmann::json();
  if (type == "NFC") {
    normalizer.composes_ = true;
  } else if (type == "Sequence" && config.contains("normalizers") && config["normalizers"].is_array()) {
    for (const nlohmann::json& part : config["normalizers"]) {
      if (!part.is_object() || part.value("type", nlohmann::json()) != "NFC") {
        throw InputError(where + ": expected no normalizer or NFC, found " + part.dump().substr(0, 300));
      }
      normalizer.composes_ = true;
    }
  } else {
    throw InputError(where + ": expected no normalizer or NFC, found " + config.dump().substr(0, 300));
  }
  return normalizer;
}

MappedText Normalizer::apply(std::string_view text) const {
  if (!composes_ || is_ascii(text)) return MappedText(text);
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError("text to tokenize: expected at most 2 GiB, found " + std::to_string(text.size()) +
                     " bytes");
  }
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed);
  icu::Edits edits;
  UErrorCode status = U_ZERO_ERROR;
  composer().normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, &edits,
                           status);
  if (U_FAILURE(status))
    throw std::runtime_error("ICU could not normalise: " + std::string(u_errorName(status)));
  if (!edits.hasChanges()) return MappedText(text);
  MappedText mapped;
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

}  // namespace clover::data
