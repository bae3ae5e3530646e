#include "data/tokenizer/tokenizer.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/text/utf8.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/sentencepiece_json.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"

namespace clover::data {

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path json_file = folder / "tokenizer.json";
  const std::filesystem::path model_file = folder / "tokenizer.model";
  const bool has_json = std::filesystem::exists(json_file);
  const bool has_model = std::filesystem::exists(model_file);
  if (!has_json && !has_model) {
    throw InputError(folder.string() +
                     ": expected tokenizer.json or tokenizer.model in the model's folder, found neither");
  }
  const TokenizerSettings settings = TokenizerSettings::load(folder);
  std::unique_ptr<Tokenizer> loaded;
  if (has_json) {
    const nlohmann::json tokenizer = read_json(json_file);
    if (is_sentencepiece_json(tokenizer)) {
      try {
        loaded =
            load_sentencepiece_json(tokenizer, json_file.string(), settings, has_model ? model_file : "");
      } catch (const InputError& error) {
        if (!has_model) throw;
        warn_once(folder.string(),
                  {"tokenizer.model is read in place of tokenizer.json (" + std::string(error.what()) + ")"});
      }
    } else if (ByteLevelVocabulary::is_byte_level(tokenizer) || !has_model) {
      loaded = std::make_unique<ByteLevelBpe>(ByteLevelVocabulary::from_json(tokenizer, json_file.string()),
                                              settings);
    }
  }
  if (!loaded) loaded = load_sentencepiece_model(model_file, settings, {});
  loaded->eos_text_ = settings.sources.text_of("eos_token");
  if (!loaded->eos_text_ && has_model && loaded->token_id("</s>")) loaded->eos_text_ = "</s>";
  return loaded;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  std::string bytes;
  bool first = true;
  for (int64_t id : ids) {
    if (skip_special && is_special(id)) continue;
    bytes += token_bytes(id, first);
    first = false;
  }
  return bytes;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

void StreamDecoder::start_after(std::span<const int64_t> ids) {
  // A character has at most 4 bytes, so the last tokens that hold 4 bytes hold all of an incomplete one.
  constexpr size_t max_character_bytes = 4;
  size_t begin = ids.size(), bytes = 0;
  while (begin > 0 && bytes < max_character_bytes) {
    const int64_t id = ids[--begin];
    if (!skip_special_ || !tokenizer_->is_special(id)) bytes += tokenizer_->token_bytes(id, false).size();
  }
  for (const int64_t id : ids.subspan(begin)) push(id);
  held_back_from_start_ = held_back_.size();
}

std::string StreamDecoder::push(int64_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  held_back_ += tokenizer_->token_bytes(id, first_);
  first_ = false;
  std::string complete_text;
  size_t position = 0;
  while (position < held_back_.size()) {
    const Utf8Step step = decode_utf8(held_back_, position);
    if (step.truncated) break;
    // Invalid bytes of the text before were emitted as U+FFFD there.
    if (step.valid || position >= held_back_from_start_) append_utf8(complete_text, step.code_point);
    position += step.length;
  }
  held_back_.erase(0, position);
  held_back_from_start_ -= std::min(held_back_from_start_, position);
  return complete_text;
}

std::string StreamDecoder::finish() {
  const std::string text = held_back_from_start_ > 0 ? "" : repair_utf8(held_back_);
  held_back_.clear();
  return text;
}

}  // namespace clover::data
